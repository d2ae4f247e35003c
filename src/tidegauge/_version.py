"""The version of tidegauge."""

__version__ = "0.1.0"
