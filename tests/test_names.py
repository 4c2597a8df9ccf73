"""A class name is defined once, so that a search finds one thing; a folder can be read at a glance."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import gpuherd

PACKAGE = Path(gpuherd.__file__).parent
ROOT = Path(__file__).parents[1]
MODULES_MAX = 15
LINES_MAX = 450
# One chain in the order of its numbers: whoever looks for something there knows its number.
MIGRATIONS = ROOT / "src/gpuherd/adapters/sql/schema/migrations/versions"
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


def test_no_folder_holds_more_modules_than_can_be_read_at_a_glance() -> None:
    folders = Counter(
        path.parent
        for top in ("src", "tests", "proof", "bench", "tools", "examples")
        for path in (ROOT / top).rglob("*.py")
        if path.name != "__init__.py"
    )
    assert folders[PACKAGE / "ports"] > 5
    crowded = {str(it.relative_to(ROOT)): n for it, n in folders.items() if n > MODULES_MAX}
    crowded.pop(str(MIGRATIONS.relative_to(ROOT)), None)
    assert crowded == {}


def test_no_module_of_the_package_holds_two_subjects() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {str(it.relative_to(PACKAGE)): n for it, n in lines.items() if n > LINES_MAX} == {}


def test_the_tests_of_a_layer_stand_in_the_rooms_of_that_layer() -> None:
    layers = [it.name for it in (ROOT / "tests").iterdir() if (PACKAGE / it.name).is_dir()]
    rooms = {it.parent for layer in layers for it in (ROOT / "tests" / layer).rglob("test_*.py")}
    assert len(rooms) > 40
    elsewhere = [it for it in rooms if not (PACKAGE / it.relative_to(ROOT / "tests")).is_dir()]
    assert elsewhere == []
