"""The OTLP receiver: spans of agents in other processes, in any language, become runs here.

``decode`` reads requests, ``intake`` queues them, ``assembling`` makes runs of what arrives in any
order; ``grpc_server`` and ``http_server`` listen, ``forwarding`` passes on.
"""
