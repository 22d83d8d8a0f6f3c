"""torch.compile(model, backend="fuseline"): compiles on a Fuseline server, launches in this process.

    import torch
    import fuseline.torch
    model = torch.compile(model, backend="fuseline")      # the server: $FUSELINE_SERVER, or options={"server": …}
    ...
    print(fuseline.torch.report())                        # what was compiled, and what was not and why

docs/torch.md tells all of it. Needs torch 2.6 or later; nothing else of the package imports it.
"""

from fuseline.torch.backend import backend
from fuseline.torch.options import Options
from fuseline.torch.report import EagerOp, GraphRecord, Report, report, reset_report

__all__ = ["EagerOp", "GraphRecord", "Options", "Report", "backend", "report", "reset_report"]
