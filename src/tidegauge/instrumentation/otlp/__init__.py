"""The OTLP receiver: spans of agents in other processes, in any language, become runs here.

``from_protobuf`` and ``from_json`` read requests, ``intake`` queues their spans, ``assembling``
makes runs of what arrives in any order; ``grpc_server`` and ``http_server`` listen, ``forwarding``
passes on.
"""
