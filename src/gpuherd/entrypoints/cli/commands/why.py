"""The command why: how an instance came to be what it is, what it waits for, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.render.instances import status_style
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, safe, shown
from gpuherd.entrypoints.cli.render.plans import entries
from gpuherd.entrypoints.cli.render.tables import Column, pairs, table
from gpuherd.entrypoints.cli.render.times import format_duration, relative_time
from gpuherd.entrypoints.cli.runtime.connection import ApiClient
from gpuherd.entrypoints.cli.runtime.find import find_id
from gpuherd.entrypoints.cli.runtime.follow import instance_path
from gpuherd.entrypoints.cli.runtime.options import NameOrId
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run


def why(context: typer.Context, name_or_id: NameOrId, as_json: JsonOption = False) -> None:
    """Tell why an instance is as it is: what was tried, what it waits for and until when."""
    cli = cli_context_of(context)
    output = Output.for_command(as_json=as_json)

    async def work(api: ApiClient) -> None:
        path = instance_path(await find_id(api, name_or_id))
        record = Details((await api.get(f"{path}/attempts")).body)
        if output.for_people:
            output.show(*_page(record, cli.clock.now(), output.out.width))
        else:
            output.json(record.raw)

    run(cli, output, work)


def _page(record: Details, now: datetime, width: int) -> Iterator[RenderableType]:
    yield shown(record.name, "bold").append(f"  {safe(record.text('instanceId'))}", "dim")
    story = _story_sentences(record)
    if story:
        yield _story_table(story, now, width)
    yield Text()
    yield pairs([(name, value) for name, value in _facts(record, now) if value])


@dataclass(frozen=True)
class _StorySentence:
    """A sentence of the story, and how long it was until the next one; None: it is the last."""

    at: datetime
    text: str
    took_s: float | None


def _story_sentences(record: Details) -> list[_StorySentence]:
    story = [(it, at) for it in entries(record, "story") if (at := it.time("at")) is not None]
    following = [at for _, at in story[1:]] + [None]
    return [
        _StorySentence(at, _words(it), None if after is None else (after - at).total_seconds())
        for (it, at), after in zip(story, following, strict=True)
    ]


def _words(it: Details) -> str:
    times = it.text("times")
    return f"{it.text('text')} ({times} times)" if times not in ("", "1") else it.text("text")


def _story_table(story: list[_StorySentence], now: datetime, width: int) -> Table:
    columns: list[Column[_StorySentence]] = [
        Column("WHEN", lambda it: relative_time(it.at, now), 1, style=lambda _: "dim"),
        Column("TOOK", _took, 2, right=True),
        Column("WHAT", lambda it: it.text, 0, shrinks_to=24, wraps=True),
    ]
    return table(columns, story, width)


def _took(it: _StorySentence) -> str:
    return format_duration(it.took_s) if it.took_s is not None and it.took_s >= 1 else ""


def _facts(record: Details, now: datetime) -> Iterator[tuple[str, Text | str]]:
    waits = Details(record.mapping("waits"))
    yield "status", Text(safe(record.status), status_style(record))
    yield "phases", ", ".join(_phases(record, now))
    if waits.raw:
        yield "waits for", waits.text("for")
        yield "because", waits.text("sentence")
        yield "since", _lasting_since(waits, now)
        yield "next try", _when(waits, "nextTryAt", now) or "now"
        yield "given up", _when(waits, "until", now) or "never: it is tried until it is done"
    elif not record.usable:
        yield "because", record.text("statusReason")
    yield "health", _health(record)
    yield "you can", record.text("advice")


def _phases(record: Details, now: datetime) -> Iterator[str]:
    for it in entries(record, "phases"):
        seconds, at = it.raw.get("seconds"), it.time("at")
        if seconds is None and at is not None and record.mapping("waits"):
            seconds = (now - at).total_seconds()
        yield f"{it.status} {format_duration(seconds)}" if isinstance(seconds, int | float) else it.status


def _lasting_since(waits: Details, now: datetime) -> str:
    since = waits.time("since")
    return "" if since is None else format_duration((now - since).total_seconds())


def _when(waits: Details, key: str, now: datetime) -> str:
    moment = waits.time(key)
    return "" if moment is None else relative_time(moment, now).removeprefix("just ")


def _health(record: Details) -> str:
    health = Details(record.mapping("health"))
    wrong = [
        f"port {it.text('port')}: {it.text('error')}"
        for it in entries(health, "endpoints")
        if it.text("error")
    ]
    return "; ".join([health.status, *wrong] if health.status else [])
