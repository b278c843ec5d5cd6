"""Messages and calls of the controller's service, made when the program runs of the descriptors in the native half.

So a wheel needs no generated code, and works with every version of protobuf from 4.25 on.
"""

from __future__ import annotations

from typing import Any

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    import grpc
except ImportError as error:
    raise ImportError(f"fibula.controller needs grpcio and protobuf: pip install 'fibula[controller]' ({error})") from error

from .._native import northbound_descriptors

_FILES = descriptor_pb2.FileDescriptorSet.FromString(northbound_descriptors())
# A pool of its own: other packages may have files of these names.
_POOL = descriptor_pool.DescriptorPool()
for _file in _FILES.file:
    _POOL.Add(_file)
_SERVICE = _POOL.FindServiceByName("fibula.v1.Northbound")


def message(name: str, /, **fields: Any) -> Any:
    """A message of the package `fibula.v1`."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"fibula.v1.{name}"))(**fields)


def call(channel: Any, method: str) -> Any:
    """A method of the service on a channel, to be called with a message."""
    described = _SERVICE.methods_by_name[method]
    of_client = next(m for file in _FILES.file for s in file.service for m in s.method if m.name == method)
    kinds = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }
    answer = message_factory.GetMessageClass(described.output_type)
    return kinds[of_client.client_streaming, of_client.server_streaming](
        f"/{_SERVICE.full_name}/{method}",
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=answer.FromString,
    )


__all__ = ["call", "grpc", "message"]
