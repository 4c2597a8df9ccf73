"""Entrypoints call use cases: of the ports they know nothing but the types that a use case takes or gives."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

from gpuherd import entrypoints

# What happens to a request is timed, counted and traced where it happens; no use case stands in between.
TELEMETRY = {"Clock", "Meter", "MetricsPage", "Tracer"}


def imported_ports() -> set[tuple[str, str, str]]:
    """Return each name that an entrypoint imports from a port, with the file and the module."""
    folder = Path(entrypoints.__file__ or "").parent
    return {
        (path.relative_to(folder).as_posix(), node.module, alias.name)
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpuherd.ports")
        for alias in node.names
        if node.module
    }


def test_no_entrypoint_has_a_port() -> None:
    imported = imported_ports()
    assert imported, "the query types, at least"
    ports = [
        (path, name)
        for path, module, name in sorted(imported)
        if getattr(getattr(importlib.import_module(module), name), "_is_protocol", False)
        and name not in TELEMETRY
    ]
    assert ports == []
