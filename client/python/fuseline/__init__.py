"""Fuseline: compiles tensor graphs into fused kernels, on a server or for this machine, and runs them.

    import fuseline
    client = fuseline.connect("127.0.0.1:50061")
    compiled = client.compile(graph)
    y = compiled(x)

docs/python.md tells all of it.
"""

from fuseline.client import Client, connect
from fuseline.compiled import Compiled, Kernel
from fuseline.dtypes import DType
from fuseline.errors import (
    AlreadyExistsError,
    DeadlineExceededError,
    Error,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
    UnimplementedError,
)
from fuseline.execute import ExecuteResult, Keep
from fuseline.graph import Graph, TensorType, Value
from fuseline.report import (
    Benchmark,
    CacheStats,
    CompileSummary,
    Explanation,
    KeptTensor,
    Report,
    ServerInfo,
    Verification,
)
from fuseline.signature import Signature
from fuseline.spec import Options
from fuseline.traced_function import JitFunction, jit

__all__ = [
    "AlreadyExistsError",
    "Benchmark",
    "CacheStats",
    "Client",
    "CompileSummary",
    "Compiled",
    "DType",
    "DeadlineExceededError",
    "Error",
    "ExecuteResult",
    "Explanation",
    "FailedPreconditionError",
    "Graph",
    "InternalError",
    "InvalidArgumentError",
    "JitFunction",
    "Keep",
    "KeptTensor",
    "Kernel",
    "NotFoundError",
    "Options",
    "Report",
    "ResourceExhaustedError",
    "ServerInfo",
    "Signature",
    "TensorType",
    "UnavailableError",
    "UnimplementedError",
    "Value",
    "Verification",
    "connect",
    "jit",
]
