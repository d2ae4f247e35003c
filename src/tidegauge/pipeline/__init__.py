"""The only place that connects the parts: settings, the live step sink, ``configure()``."""

from tidegauge.pipeline.engine_sink import EngineSink
from tidegauge.pipeline.settings import Settings
from tidegauge.pipeline.setup import Pipeline, configure, flush

__all__ = ["EngineSink", "Pipeline", "Settings", "configure", "flush"]
