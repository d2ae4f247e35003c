"""OTLP's trace request with its spans as they came: bytes, to be parsed one by one.

Whatever part of a message is kept keeps all of it, and a request may be of megabytes. The message
here is the official one but for the spans of a scope, which are declared as bytes: the same on the
wire. So a span that is kept keeps nothing of its request, how large it is is known, and all else is
as valid or not as it is to the official one.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor_pb2 import (  # type: ignore[import-untyped]
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

__all__ = ["WireRequest"]


def _request_with_spans_as_bytes() -> Any:
    pool = DescriptorPool()  # of its own: the official messages stay what they are
    for module in (common_pb2, resource_pb2, trace_pb2):
        file = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for message in file.message_type:
            for field in message.field:
                if (message.name, field.name) == ("ScopeSpans", "spans"):
                    field.type = FieldDescriptorProto.TYPE_BYTES
                    field.ClearField("type_name")
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("opentelemetry.proto.trace.v1.TracesData"))


WireRequest: Final[Any] = _request_with_spans_as_bytes()
"""``TracesData``, which on the wire is what ``ExportTraceServiceRequest`` is."""
