"""Spans that arrive over the wire: of agents in other processes, in any language.

``grpc_server`` and ``http_server`` listen, ``request_handler`` decodes (``decoding``,
``json_decoding``), ``receiver`` queues, ``assembly`` makes runs of spans that arrive in any
order, ``forwarding`` forwards requests.
"""
