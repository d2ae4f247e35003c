"""The gateway of a fleet: writes received spans to a topic, for workers to measure.

``gateway`` produces the messages, ``span_encoding`` writes and ``span_decoding`` reads them;
``brokers`` configures Kafka clients.
"""
