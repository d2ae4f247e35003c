"""tidegauge beside other guards, on everyday agents that never end and legitimate ones."""
