"""Shared by all servers of tidegauge: request headers, time limits, host names, tokens."""
