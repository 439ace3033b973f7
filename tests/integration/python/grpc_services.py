"""Our gRPC services as a client sees them that knows nothing but the address: all descriptions come
from the server's reflection."""

import re

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

PACKAGE = "refrain.v1"


class _WithMetadata(grpc.StreamStreamClientInterceptor):
    def __init__(self, metadata):
        self.metadata = metadata

    def intercept_stream_stream(self, continuation, details, requests):
        return continuation(details._replace(metadata=self.metadata), requests)


class Services:
    def __init__(self, channel: grpc.Channel, metadata=()):
        """Reflection is asked with `metadata`."""
        self.channel = channel
        self.reflection = ProtoReflectionDescriptorDatabase(
            grpc.intercept_channel(channel, _WithMetadata(metadata)))
        self.pool = descriptor_pool.DescriptorPool(self.reflection)

    def message(self, name: str, **fields):
        description = self.pool.FindMessageTypeByName(f"{PACKAGE}.{name}")
        return message_factory.GetMessageClass(description)(**fields)

    def __call__(self, method: str, timeout=60, metadata=(), **fields):
        """Calls "Service/Method"; the fields are those of its request."""
        service, name = method.split("/")
        description = self.pool.FindServiceByName(f"{PACKAGE}.{service}").methods_by_name[name]
        request = message_factory.GetMessageClass(description.input_type)(**fields)
        make = self.channel.unary_stream if description.server_streaming else self.channel.unary_unary
        call = make(f"/{PACKAGE}.{method}", type(request).SerializeToString,
                    message_factory.GetMessageClass(description.output_type).FromString)
        return call(request, timeout=timeout, metadata=metadata)


def address(daemon) -> str:
    """Of a running daemon's gRPC server."""
    return re.search(r"grpc=(127\.0\.0\.1:[0-9]+)", daemon.log.read_text()).group(1)


def text_of(messages) -> str:
    return "".join(delta.text for message in messages for delta in message.choices)
