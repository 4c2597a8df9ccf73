"""Remove one of the things that an account has beside its machines: find it, ask, remove it, say so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from gpuherd.client.sync_client import Gpuherd
from gpuherd.entrypoints.cli.render.output import Output
from gpuherd.entrypoints.cli.runtime.confirm import confirm_or_exit, require_terminal
from gpuherd.entrypoints.cli.runtime.errors import CommandError, problem_report
from gpuherd.entrypoints.cli.runtime.session import CliContext, run


class Listed(Protocol):
    """What a list shows."""

    @property
    def id(self) -> str: ...


class Removed(Listed, Protocol):
    """What a removal answers."""

    @property
    def raw(self) -> Any: ...


L = TypeVar("L", bound=Listed)


def only_one(
    listed: Iterable[L], word: str, name: Callable[[L], str], code: str, nouns: tuple[str, str]
) -> L:
    """Return the one with this id, else the only one of this name; `code` says that there is none."""
    everything = list(listed)
    found = [it for it in everything if it.id == word] or [it for it in everything if name(it) == word]
    if len(found) == 1:
        return found[0]
    one, many = nouns
    if not found:
        report = problem_report(code, "not found", f"there is no {one} {word}", 404)
    else:
        detail = f"{len(found)} {many} {word}; use the id"
        report = problem_report("AMBIGUOUS_NAME", "more than one could be meant", detail, 409)
    raise CommandError.of(report)


def remove_one(
    cli: CliContext,
    output: Output,
    find: Callable[[Gpuherd], L],
    delete: Callable[[Gpuherd, L], Removed],
    *,
    question: Callable[[L], str],
    shown: Callable[[L], str],
    yes: bool,
) -> None:
    """Remove what `find` finds, once a person has said so; with `yes` nobody is asked."""
    if not yes:
        require_terminal()
    found = run(cli, output, find)
    if not yes:
        confirm_or_exit(output, question(found), "nothing was removed")
    removed = run(cli, output, lambda herd: delete(herd, found))
    if output.for_people:
        output.note(f"removed {shown(found)}")
    else:
        output.answer(removed.raw, removed.id)
