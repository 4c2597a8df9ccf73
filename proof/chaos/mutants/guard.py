"""A guard of the service, and the operators: each changes the statement below the marker of the guard."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Marked:
    """A source file, the statement below a marker, and the statements that follow it in its block."""

    source: str
    statements: list[ast.stmt]

    def start(self, node: ast.stmt | ast.expr) -> int:
        decorators = getattr(node, "decorator_list", [])
        return self._offset(decorators[0].lineno if decorators else node.lineno, node.col_offset)

    def end(self, node: ast.stmt | ast.expr) -> int:
        return self._offset(node.end_lineno or 0, node.end_col_offset or 0)

    def _offset(self, line: int, column: int) -> int:
        lines = self.source.splitlines(keepends=True)
        # ast counts the columns in bytes.
        return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())

    def with_text(self, begin: int, end: int, text: str) -> str:
        return self.source[:begin] + text + self.source[end:]


Operator = Callable[[Marked], str]


@dataclass(frozen=True)
class Guard:
    """A line that protects money, data or access. In the source, `# guard: NAME` stands above it."""

    name: str
    operator: Operator
    # The tests that must fail without it, in pytest's words: files, or single tests.
    tests: tuple[str, ...]
    # A few tests need a PostgreSQL server.
    is_of_postgres: bool = False
    # A person has judged: without the guard the service crashes at this line, and that is an honest end.
    crashes: bool = False


def guard(
    name: str, operator: Operator, *tests: str, is_of_postgres: bool = False, crashes: bool = False
) -> Guard:
    return Guard(name, operator, tests, is_of_postgres, crashes)


class NotApplicableError(ValueError):
    """The statement below the marker is not what the operator expects."""


def instead(code: str, n: int = 1) -> Operator:
    """Put other code in the place of the statement, or of the n statements that begin there."""

    def edit(marked: Marked) -> str:
        first, last = marked.statements[0], marked.statements[:n][-1]
        lines = textwrap.dedent(code).strip().splitlines()
        text = f"\n{' ' * first.col_offset}".join(lines)
        return marked.with_text(marked.start(first), marked.end(last), text)

    return edit


def before(code: str) -> Operator:
    """Put more code before the statement."""

    def edit(marked: Marked) -> str:
        first = marked.statements[0]
        begin, indent = marked.start(first), " " * first.col_offset
        text = "".join(f"{line}\n{indent}" for line in textwrap.dedent(code).strip().splitlines())
        return marked.with_text(begin, begin, text)

    return edit


def drop(n: int = 1) -> Operator:
    """Delete the statement, or the n statements that begin there."""
    return instead("pass", n)


def never() -> Operator:
    """Make the condition of the statement false."""
    return _condition("False")


def always() -> Operator:
    """Make the condition of the statement true."""
    return _condition("True")


def _condition(value: str) -> Operator:
    def edit(marked: Marked) -> str:
        statement = marked.statements[0]
        if not isinstance(statement, ast.If | ast.While):
            raise NotApplicableError("the statement below the marker has no condition")
        return marked.with_text(marked.start(statement.test), marked.end(statement.test), value)

    return edit


def part(old: str, new: str) -> Operator:
    """Change one part of the statement. It must stand there once. Line breaks do not matter."""

    def edit(marked: Marked) -> str:
        begin, end = marked.start(marked.statements[0]), marked.end(marked.statements[0])
        pattern = r"\s+".join(re.escape(word) for word in old.split())
        found = list(re.compile(pattern).finditer(marked.source, begin, end))
        if len(found) != 1:
            raise NotApplicableError(f"{old!r} stands {len(found)} times in the statement below the marker")
        return marked.with_text(found[0].start(), found[0].end(), new)

    return edit


def swap() -> Operator:
    """Exchange the statement and the one after it."""

    def edit(marked: Marked) -> str:
        if len(marked.statements) < 2:
            raise NotApplicableError("no statement follows the one below the marker")
        (a, b), (c, d) = ((marked.start(it), marked.end(it)) for it in marked.statements[:2])
        source = marked.source
        return marked.with_text(a, d, source[c:d] + source[b:c] + source[a:b])

    return edit


def find_statement(source: str, marker_line: int) -> list[ast.stmt]:
    """Return the statement that begins below a marker, and those after it in its block."""
    lines = source.splitlines()
    line = marker_line + 1
    while line <= len(lines) and (not lines[line - 1].strip() or lines[line - 1].lstrip().startswith("#")):
        line += 1
    for node in ast.walk(ast.parse(source)):
        for _, block in ast.iter_fields(node):
            if not isinstance(block, list):
                continue
            for n, child in enumerate(block):
                if isinstance(child, ast.stmt) and first_line(child) == line:
                    return block[n:]
    return []


def first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(it.lineno for it in decorators)])
