"""The version of tidegauge."""

__version__ = "0.2.0"
