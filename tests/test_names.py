"""A class name is defined once in the package, so that a search for it finds one thing."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import gpuherd

PACKAGE = Path(gpuherd.__file__).parent
# They have the same names on purpose: the client reads what the contract says.
PUBLIC_SHAPES = ("contract", "client")


def defined_classes() -> Counter[str]:
    return Counter(
        node.name
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in PUBLIC_SHAPES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )


def test_a_class_name_is_defined_once() -> None:
    classes = defined_classes()
    assert classes["Plane"] == 1
    assert {name for name, count in classes.items() if count > 1} == set()
