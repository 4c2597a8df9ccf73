"""The command why: how an instance came to be what it is, what it waits for, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gpuherd.contract.plan_models import Sentence, Waiting, Why
from gpuherd.entrypoints.cli.render.instances import status_style
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, safe, shown
from gpuherd.entrypoints.cli.render.tables import Column, pairs, table
from gpuherd.entrypoints.cli.runtime.find import find_id
from gpuherd.entrypoints.cli.runtime.options import NameOrId
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run
from gpuherd.entrypoints.durations import format_duration, relative_time


def why(context: typer.Context, name_or_id: NameOrId, as_json: JsonOption = False) -> None:
    """Tell why an instance is as it is: what was tried, what it waits for and until when."""
    cli = cli_context_of(context)
    output = Output.for_command(as_json=as_json)

    record = run(cli, output, lambda herd: herd.instances.why(find_id(herd, name_or_id)))
    if output.for_people:
        output.show(*_page(record, cli.clock.now(), output.out.width))
    else:
        output.json(record.raw)


def _page(record: Why, now: datetime, width: int) -> Iterator[RenderableType]:
    yield shown(record.name, "bold").append(f"  {safe(record.instance_id)}", "dim")
    if record.story:
        yield _story_table(_story_sentences(record), now, width)
    yield Text()
    yield pairs([(name, value) for name, value in _facts(record, now) if value])


@dataclass(frozen=True)
class _StorySentence:
    """A sentence of the story, and how long it was until the next one; None: it is the last."""

    at: datetime
    text: str
    took_s: float | None


def _story_sentences(record: Why) -> list[_StorySentence]:
    following = [it.at for it in record.story[1:]] + [None]
    return [
        _StorySentence(it.at, _words(it), None if after is None else (after - it.at).total_seconds())
        for it, after in zip(record.story, following, strict=True)
    ]


def _words(it: Sentence) -> str:
    return it.text if it.times == 1 else f"{it.text} ({it.times} times)"


def _story_table(story: list[_StorySentence], now: datetime, width: int) -> Table:
    columns: list[Column[_StorySentence]] = [
        Column("WHEN", lambda it: relative_time(it.at, now), 1, style=lambda _: "dim"),
        Column("TOOK", _took, 2, right=True),
        Column("WHAT", lambda it: it.text, 0, shrinks_to=24, wraps=True),
    ]
    return table(columns, story, width)


def _took(it: _StorySentence) -> str:
    return format_duration(it.took_s) if it.took_s is not None and it.took_s >= 1 else ""


def _facts(record: Why, now: datetime) -> Iterator[tuple[str, Text | str]]:
    waits = record.waits
    yield "status", Text(safe(record.status), status_style(record.status, usable=record.usable))
    yield "phases", ", ".join(_phases(record, now))
    if waits is not None:
        yield "waits for", waits.what
        yield "because", waits.sentence
        yield "since", _lasting_since(waits, now)
        if waits.position is not None:
            yield "in line", f"place {waits.position}, {waits.ahead} ahead"
        if waits.last_answer is not None:
            yield "last answer", f"{waits.last_answer.offer}: {waits.last_answer.message}"
        yield "next try", _when(waits.next_try_at, now) or ("when it is its turn" if waits.ahead else "now")
        yield "given up", _when(waits.until, now) or "never: it is tried until it is done"
    elif not record.usable:
        yield "because", record.status_reason or ""
    yield "health", _health(record)
    yield "lineage", ", ".join(_lineage(record))
    yield "you can", record.advice or ""


def _phases(record: Why, now: datetime) -> Iterator[str]:
    for it in record.phases:
        seconds = it.seconds
        if seconds is None and it.at is not None and record.waits is not None:
            seconds = (now - it.at).total_seconds()
        yield it.status if seconds is None else f"{it.status} {format_duration(seconds)}"


def _lineage(record: Why) -> Iterator[str]:
    for it in record.lineage:
        words = "" if it.made_for is None else f" ({_MADE_FOR.get(it.made_for, it.made_for)})"
        yield f"{it.link}. {it.instance_id} {it.status}{words}"


_MADE_FOR = {
    "notice": "before a machine was taken back",
    "lost": "after a machine was taken back",
    "asked": "asked for",
}


def _lasting_since(waits: Waiting, now: datetime) -> str:
    return "" if waits.since is None else format_duration((now - waits.since).total_seconds())


def _when(moment: datetime | None, now: datetime) -> str:
    return "" if moment is None else relative_time(moment, now).removeprefix("just ")


def _health(record: Why) -> str:
    health = record.health
    if health is None:
        return ""
    wrong = [f"port {it.port}: {it.error}" for it in health.endpoints if it.error]
    return "; ".join([health.status, *wrong])
