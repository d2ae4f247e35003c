"""Spans and step events that arrive over the wire.

:mod:`~tidegauge.receivers.otlp` receives OpenTelemetry's protocol;
:mod:`~tidegauge.receivers.kafka` is the gateway of a fleet: it writes what it receives to a topic.
"""
