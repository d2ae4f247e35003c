"""What tidegauge costs, measured as ratios within one run, each beside its mark."""
