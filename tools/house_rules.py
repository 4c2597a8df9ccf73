"""Check the house rules of src: `python -m tools.house_rules`. Exit with 1 if a rule is broken too often.

With a word of a rule, list each place where it is broken: `python -m tools.house_rules phrases`.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SRC = Path(__file__).parent.parent / "src"
LINES_MAX = 450
MODULES_MAX = 30
# The package, a layer, and one folder below the layer. Alembic has its own folders.
FOLDERS_MAX = 3
MIGRATIONS = "migrations"
SAME_NAMES = ("__init__.py", "__main__.py")
# The client returns what the contract describes, under the same class names.
PUBLIC_SHAPES = ("contract", "client")
PHRASES = re.compile(
    r"\b(whoever|whomever|tell whether|so long as|so often as|of one who|one who|of those who|what it is that"
    r"|is told|are told|nobody who|whatever they)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Module:
    path: Path
    source: str
    tree: ast.Module
    nodes: list[ast.AST]


def read_modules(src: Path = SRC) -> list[Module]:
    modules = []
    for path in sorted(src.rglob("*.py")):
        if MIGRATIONS not in path.relative_to(src).parts:
            tree = ast.parse(source := path.read_text())
            modules.append(Module(path.relative_to(src), source, tree, list(ast.walk(tree))))
    return modules


def basenames_used_twice(modules: list[Module]) -> Iterator[str]:
    return repeated((it.path.name, it.path) for it in modules if it.path.name not in SAME_NAMES)


def class_names_used_twice(modules: list[Module]) -> Iterator[str]:
    ours = [it for it in modules if it.path.parts[1] not in PUBLIC_SHAPES]
    return repeated(
        (node.name, it.path) for it in ours for node in it.nodes if isinstance(node, ast.ClassDef)
    )


def repeated(named: Iterable[tuple[str, Path]]) -> Iterator[str]:
    places = defaultdict(list)
    for name, path in named:
        places[name].append(str(path))
    return (f"{name}: {', '.join(paths)}" for name, paths in places.items() if len(paths) > 1)


def long_modules(modules: list[Module]) -> Iterator[str]:
    lines = {it.path: it.source.count("\n") for it in modules}
    return (f"{path}: {n} lines" for path, n in lines.items() if n > LINES_MAX)


def full_folders(modules: list[Module]) -> Iterator[str]:
    folders = Counter(it.path.parent for it in modules if it.path.name != "__init__.py")
    return (f"{folder}: {n} modules" for folder, n in folders.items() if n > MODULES_MAX)


def deep_folders(modules: list[Module]) -> Iterator[str]:
    return iter(sorted({str(it.path.parent) for it in modules if len(it.path.parent.parts) > FOLDERS_MAX}))


def imports_of_private_parts(modules: list[Module]) -> Iterator[str]:
    for it in modules:
        for name in imported_names(it.nodes):
            if not name.startswith(("gpuherd.", "__future__")) and re.search(r"(^|\.)_", name):
                yield f"{it.path}: {name}"


def mutual_imports(modules: list[Module]) -> Iterator[str]:
    """Return pairs that import each other when they are loaded. TYPE_CHECKING does not count."""
    names = {".".join(it.path.with_suffix("").parts).removesuffix(".__init__"): it for it in modules}
    imports = {name: names.keys() & set(imported_names(it.tree.body)) for name, it in names.items()}
    for name, others in imports.items():
        yield from (f"{name} and {it}" for it in sorted(others) if name < it and name in imports[it])


def imported_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (it.name for it in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)
            yield from (f"{node.module}.{it.name}" for it in node.names)


def clever_code(modules: list[Module]) -> Iterator[str]:
    for it in modules:
        for node in it.nodes:
            match node:
                case ast.Call(func=ast.Name(id="exec" | "eval")):
                    yield f"{it.path}:{node.lineno}: exec or eval"
                case ast.Attribute(attr="__class__", ctx=ast.Store()):
                    yield f"{it.path}:{node.lineno}: assignment to __class__"


def odd_phrases(modules: list[Module]) -> Iterator[str]:
    for it in modules:
        tokens = tokenize.generate_tokens(io.StringIO(it.source).readline)
        prose = [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
        for node in it.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                prose.append((node.lineno, " ".join(node.value.split())))
        for line, text in prose:
            yield from (f"{it.path}:{line}: {phrase}" for phrase in PHRASES.findall(text))


# How often each rule may be broken. A commit may lower a number, never raise one.
# The aim is 0 everywhere, and 5 long modules.
CEILINGS = {
    basenames_used_twice: 0,
    class_names_used_twice: 0,
    long_modules: 2,
    full_folders: 0,
    deep_folders: 1,
    imports_of_private_parts: 0,
    mutual_imports: 0,
    clever_code: 0,
    odd_phrases: 10,
}


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    modules = read_modules()
    is_broken = False
    for rule, ceiling in CEILINGS.items():
        name = rule.__name__.replace("_", " ")
        found = list(rule(modules))
        if len(found) > ceiling or (wanted and wanted in name):
            sys.stdout.writelines(f"    {it}\n" for it in found)
        is_broken = is_broken or len(found) > ceiling
        sys.stdout.write(f"{'!' if len(found) > ceiling else ' '} {name}: {len(found)}, at most {ceiling}\n")
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
