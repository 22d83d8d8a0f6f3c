"""The messages and methods of fuseline.v1, made when first needed from descriptors that the build put into the package.

Descriptors instead of generated modules: they work with every protobuf runtime from 3.20 on, whichever made them; and
in a pool of their own, so that nothing clashes with another package's copy of google/rpc.

Pipeline: proto/**/*.proto -> protoc (setup.py) -> _protocol.binpb -> messages. Thread-safety: thread-safe.
"""

from __future__ import annotations

import dataclasses
import functools
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_RESOURCE = "_protocol.binpb"


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of a service."""

    path: str  # "/fuseline.v1.CompileService/Compile"
    request: Any  # the class
    response: Any
    client_streaming: bool
    server_streaming: bool


@functools.cache
def _pool() -> tuple[Any, dict[str, Any]]:
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(resources.files("fuseline").joinpath(_RESOURCE).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    methods: dict[str, Any] = {}
    for file in files.file:  # each after those that it imports
        pool.AddSerializedFile(file.SerializeToString())
        for service in file.service:
            for method in service.method:
                methods[method.name] = (f"/{file.package}.{service.name}/{method.name}", method)
    return pool, methods


@functools.cache
def message_class(full_name: str) -> Any:
    """The class of a message, by its full name. Raises KeyError."""
    descriptor = _pool()[0].FindMessageTypeByName(full_name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return getattr(message_factory.MessageFactory(_pool()[0]), "GetPrototype")(descriptor)  # noqa: B009


def message(name: str) -> Any:
    """The class of a message of fuseline.v1: message("CompileRequest")."""
    return message_class("fuseline.v1." + name)


@functools.cache
def method(name: str) -> Method:
    """A method by its name; no two services have one of the same name."""
    path, descriptor = _pool()[1][name]
    return Method(
        path,
        message_class(descriptor.input_type.lstrip(".")),
        message_class(descriptor.output_type.lstrip(".")),
        descriptor.client_streaming,
        descriptor.server_streaming,
    )


def enum_name(enum: str, number: int, prefix: str) -> str:
    """The name of an enum's number without its prefix, as the command line spells it: "memory-hit"; or "unknown"."""
    descriptor = _pool()[0].FindEnumTypeByName("fuseline.v1." + enum)
    value = descriptor.values_by_number.get(number)
    return "unknown" if value is None else value.name.removeprefix(prefix).lower().replace("_", "-")
