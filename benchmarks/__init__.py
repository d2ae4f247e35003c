"""What tidegauge costs, measured as ratios within one run, each with its target."""
