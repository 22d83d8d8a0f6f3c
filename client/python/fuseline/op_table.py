"""The op table, as the build took it from the command line (`fuseline ops --json`).

Without it, where the package was built apart from the project, graphs are checked by the server alone, and ops with
several results need to be told so.

Pipeline: common/ir/ops -> fuseline ops --json (setup.py) -> _ops.json -> Graph. Thread-safety: immutable.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

_RESOURCE = "_ops.json"


@dataclasses.dataclass(frozen=True)
class Attribute:
    name: str
    type: str  # "int", "float", "bool", "string", "dtype", "int_list", "float_list", "scalar", "data"
    required: bool
    default: Any  # None: there is none


@dataclasses.dataclass(frozen=True)
class Op:
    name: str
    kind: str
    min_operands: int
    max_operands: int  # -1: any number
    results: int
    attributes: Mapping[str, Attribute]


@functools.cache
def ops() -> Mapping[str, Op]:
    """All ops by name; empty where the package was built without the table."""
    resource = resources.files("fuseline").joinpath(_RESOURCE)
    if not resource.is_file():
        return {}
    table = {}
    for row in json.loads(resource.read_text(encoding="utf-8"))["ops"]:
        attributes = {
            spec["name"]: Attribute(spec["name"], spec["type"], spec["required"], spec.get("default"))
            for spec in row["attributes"]
        }
        table[row["name"]] = Op(
            row["name"], row["kind"], row["min_operands"], row["max_operands"], row["results"], attributes
        )
    return table
