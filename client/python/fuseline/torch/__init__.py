"""torch.compile(model, backend="fuseline"): compiles on a Fuseline server, launches in this process.

    import torch
    import fuseline.torch
    model = torch.compile(model, backend="fuseline")      # the server: $FUSELINE_SERVER, or options={"server": …}
    ...
    print(fuseline.torch.report())                        # what was compiled, and what was not and why

docs/torch.md tells all of it. Needs torch 2.6 or later; nothing else of the package imports it.
"""

import time as _time

_start = _time.perf_counter()

from fuseline.torch.backend import backend  # noqa: E402
from fuseline.torch.options import Options  # noqa: E402
from fuseline.torch.report import EagerOp, GraphRecord, Report, report, reset_report  # noqa: E402


def _register() -> None:
    """For a package that is on the path but not installed, and so has no entry point: the backend's name."""
    import sys

    registry = sys.modules.get("torch._dynamo.backends.registry")
    if "fuseline" in getattr(registry, "_BACKENDS", ()):
        # torch has come here by the entry point. Reading all packages' metadata once more would take longer than this.
        return
    from importlib import metadata

    if not any(point.name == "fuseline" for point in metadata.entry_points(group="torch_dynamo_backends")):
        from torch._dynamo import register_backend

        register_backend(backend, name="fuseline")


_register()
_import_seconds = _time.perf_counter() - _start


def import_seconds() -> float:
    """What loading the backend took, once a process."""
    return _import_seconds


__all__ = ["EagerOp", "GraphRecord", "Options", "Report", "backend", "import_seconds", "report", "reset_report"]
