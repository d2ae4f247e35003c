"""What tidegauge and other tracers add to an agent's step and to a function's call, in one run."""
