"""The commands that explain: why, events, logs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

import click
from rich.text import Text

from gpuherd.entrypoints.cli.cli_errors import detail_of
from gpuherd.entrypoints.cli.cli_output import (
    Column,
    LogText,
    Output,
    Row,
    as_json,
    moment_of,
    pairs,
    safe,
    shown,
)
from gpuherd.entrypoints.cli.command_runner import NAME_OR_ID, completion, instance_choices, server_command
from gpuherd.entrypoints.cli.instance_facts import (
    command_about,
    find_instance,
    find_instance_id,
    status_style,
)
from gpuherd.entrypoints.cli.server_connection import ServerConnection, path_of
from gpuherd.entrypoints.cli.server_replies import ServerReply, ServerUnreachable, UnexpectedReply
from gpuherd.entrypoints.durations import format_duration, relative_time

# The API's word for events without an instance.
ACCOUNT = "account"
PAGE = 100
BEFORE_FOLLOWING = 10
# The server sends at most this much of a log that is not followed.
LOG_BYTES_MAX = 2**20
NAME_CHARS_MAX, WHAT_WIDTH = 24, 17
EVENT_STYLES = {
    "instance.ready": "green",
    "instance.failed": "red",
    "instance.timeout": "red",
    "instance.reclaim_notice": "yellow",
    "instance.waiting": "yellow",
    "instance.granted": "green",
    "instance.orphan_detected": "yellow",
}
MADE_FOR = {
    "notice": "before a machine was taken back",
    "lost": "after a machine was taken back",
    "asked": "asked for",
}


# --- why ---


@server_command("why", NAME_OR_ID)
def why(server: ServerConnection, output: Output, name_or_id: str) -> None:
    """Tell why an instance is as it is: what was tried, what it waits for and until when."""
    record = server.get(path_of("instances", find_instance_id(server, name_or_id), "attempts"))
    for name in ("instanceId", "name", "status", "story"):
        # An answer without these fields is no record.
        record[name]
    if not output.for_people:
        output.json(record)
        return
    now = output.clock.now()
    output.show(shown(record["name"], "bold").append(f"  {safe(record['instanceId'])}", "dim"))
    if story := _story(record):
        columns = [
            Column("WHEN", lambda row: relative_time(row["at"], now), 1, style=lambda _: "dim"),
            Column("TOOK", lambda row: _took(row["took_s"]), 2, right=True),
            Column("WHAT", "text", 0, shrinks_to=24, wraps=True),
        ]
        output.table(columns, story)
    output.show(Text(), pairs([(name, value) for name, value in _facts(record, now) if value]))


def _story(record: Row) -> list[Row]:
    """Return the sentences with their times, and the time until the next one."""
    sentences = [(moment_of(sentence["at"]), sentence) for sentence in record["story"]]
    timed = [(at, sentence) for at, sentence in sentences if at is not None]
    following = [at for at, _ in timed[1:]] + [None]
    rows = []
    for (at, sentence), after in zip(timed, following, strict=True):
        times = sentence.get("times")
        text = sentence["text"] if times in (None, 1) else f"{sentence['text']} ({times} times)"
        rows.append({"at": at, "text": text, "took_s": after and (after - at).total_seconds()})
    return rows


def _took(seconds: float | None) -> str:
    return format_duration(seconds) if seconds is not None and seconds >= 1 else ""


def _facts(record: Row, now: datetime) -> Iterator[tuple[str, Text | str]]:
    status, usable, waits = str(record["status"]), bool(record.get("usable")), record.get("waits")
    yield "status", Text(safe(status), status_style(status, usable=usable))
    yield "phases", ", ".join(_phases(record, now))
    if waits:
        yield "waits for", str(waits["for"])
        yield "because", str(waits.get("sentence") or "")
        since = moment_of(waits.get("since"))
        yield "since", "" if since is None else format_duration((now - since).total_seconds())
        if waits.get("position") is not None:
            yield "in line", f"place {waits['position']}, {waits.get('ahead')} ahead"
        if answer := waits.get("lastAnswer"):
            yield "last answer", f"{answer.get('offer')}: {answer.get('message')}"
        otherwise = "when it is its turn" if waits.get("ahead") else "now"
        yield "next try", _moment(waits.get("nextTryAt"), now) or otherwise
        yield "given up", _moment(waits.get("until"), now) or "never: it is tried until it is done"
    elif not usable:
        yield "because", str(record.get("statusReason") or "")
    if health := record.get("health"):
        wrong = [
            f"port {endpoint.get('port')}: {endpoint['error']}"
            for endpoint in health.get("endpoints") or ()
            if endpoint.get("error")
        ]
        yield "health", "; ".join([str(health["status"]), *wrong])
    yield "lineage", ", ".join(_lineage(record))
    yield "you can", str(record.get("advice") or "")


def _phases(record: Row, now: datetime) -> Iterator[str]:
    for phase in record.get("phases") or ():
        seconds, at = phase.get("seconds"), moment_of(phase.get("at"))
        if seconds is None and at is not None and record.get("waits"):
            seconds = (now - at).total_seconds()
        yield str(phase["status"]) if seconds is None else f"{phase['status']} {format_duration(seconds)}"


def _lineage(record: Row) -> Iterator[str]:
    for member in record.get("lineage") or ():
        made_for = member.get("madeFor")
        words = "" if made_for is None else f" ({MADE_FOR.get(made_for, made_for)})"
        yield f"{member.get('link')}. {member['instanceId']} {member.get('status')}{words}"


def _moment(value: object, now: datetime) -> str:
    moment = moment_of(value)
    return "" if moment is None else relative_time(moment, now).removeprefix("just ")


# --- events ---


@server_command(
    "events",
    click.argument(
        "name",
        required=False,
        metavar="[NAME_OR_ID]",
        shell_complete=completion(instance_choices),
        help="Of one instance; `account` for those of none.",
    ),
    click.option("--follow", "-f", is_flag=True, help="Go on as things happen."),
    click.option("--since", type=click.IntRange(0, 2**53), metavar="ID", help="Everything after this event."),
    click.option("--type", "kind", help="Only these: instance.ready."),
    click.option("--limit", "-n", type=click.IntRange(1, PAGE), help="How many of the latest; 50."),
)
def events(
    server: ServerConnection,
    output: Output,
    name: str | None,
    follow: bool,
    since: int | None,
    kind: str | None,
    limit: int | None,
) -> None:
    """Show what happened, oldest first. For programs: one JSON object a line."""
    try:
        instance = name if name is None or name == ACCOUNT else find_instance_id(server, name)
        if since is None:
            count = limit or (BEFORE_FOLLOWING if follow else 50)
            last = _show_latest(server, output, instance, kind, count)
        else:
            last = _show_since(server, output, instance, kind, since)
        if follow:
            _follow_events(server, output, instance, kind, last)
    except KeyboardInterrupt:
        # There is no other way to end it.
        if not follow:
            raise


def last_event_id(history: ServerReply) -> int:
    """Return the id after which the events continue."""
    try:
        return int(history["lastEventId"])
    except ValueError:
        raise UnexpectedReply("the server's answer has no last event") from None


def _history(server: ServerConnection, **query: Any) -> ServerReply:
    return server.rows("/api/events/history", "events", **query)


def _show_latest(
    server: ServerConnection, output: Output, instance: str | None, kind: str | None, limit: int
) -> int:
    """Show the latest events; return where to continue."""
    history = _history(server, instance=instance, type=kind, limit=limit)
    for event in reversed(history["events"]):
        _show_event(output, event)
    if not history["events"] and output.for_people:
        output.note("nothing has happened yet")
    return last_event_id(history)


def _show_since(
    server: ServerConnection, output: Output, instance: str | None, kind: str | None, last: int
) -> int:
    """Show everything after an event, page by page; return where to continue."""
    while True:
        history = _history(server, instance=instance, type=kind, limit=PAGE, lastEventId=last)
        reached = last_event_id(history)
        for event in history["events"]:
            _show_event(output, event)
        if not history["events"] or reached == last:
            return reached
        last = reached


def _follow_events(
    server: ServerConnection, output: Output, instance: str | None, kind: str | None, last: int
) -> None:
    """Show the events after `last` as they come, until Ctrl-C."""
    # The client loads asyncio, aiohttp and pydantic, which a list of events does not need.
    from gpuherd.entrypoints.cli.command_client import as_row, broken_off, open_client  # noqa: PLC0415

    def on_break(error: Exception) -> None:
        failure = broken_off(error)
        where = f"cannot reach {failure.url}: " if isinstance(failure, ServerUnreachable) else ""
        output.note(f"{safe(where + detail_of(failure))}; trying again (Ctrl-C ends)", "yellow")

    def on_resume() -> None:
        output.note("connected again; nothing was missed", "dim")

    with open_client(server, output.clock) as client:
        for event in client.events(instance, type=kind, since=last, on_break=on_break, on_resume=on_resume):
            _show_event(output, as_row(event))


def _show_event(output: Output, event: Row) -> None:
    if output.for_people:
        output.out.print(_event_line(event), soft_wrap=True)
    else:
        click.echo(as_json(event, indent=None))


def _event_line(event: Row) -> Text:
    """Return id, time, name, what happened, and why."""
    at, kind = moment_of(event["at"]), str(event["type"])
    name = safe(event.get("name") or "(account)")
    name = name if len(name) <= NAME_CHARS_MAX else name[: NAME_CHARS_MAX - 1] + "…"
    what = safe(kind.removeprefix("instance.").replace("_", " "))
    line = Text(f"{event['id']!s:>6}  ", style="dim")
    # In local time.
    line.append(f"{at.astimezone():%Y-%m-%d %H:%M:%S}" if at else "", style="default")
    line.append(f"  {name:<{NAME_CHARS_MAX}}", style="bold")
    line.append(f"  {what:<{WHAT_WIDTH}}", style=EVENT_STYLES.get(kind, "cyan"))
    before, after = event.get("before"), event.get("after")
    reason = event.get("reason") or (f"{before} -> {after}" if before and after else "")
    if reason:
        line.append(f"  {safe(reason)}", style="default")
    line.rstrip()
    return line


# --- logs ---


@server_command(
    "logs",
    NAME_OR_ID,
    click.option("--follow", "-f", is_flag=True, help="Go on as lines are written."),
    click.option("--system", is_flag=True, help="What the cloud does for it: the pull of the image."),
    json=False,
)
def logs(server: ServerConnection, output: Output, name_or_id: str, follow: bool, system: bool) -> None:
    """Show the log of an instance: what there is now, its first MiB, or with -f all of it.

    In a pipe its bytes go out as they are; on a terminal nothing in them is obeyed.
    """
    # The client loads asyncio, aiohttp and pydantic, which the other commands of this module do not need.
    from gpuherd.entrypoints.cli.command_client import open_client  # noqa: PLC0415

    size = 0
    text = LogText() if sys.stdout.isatty() else None
    try:
        instance = find_instance(server, name_or_id)
        with open_client(server, output.clock) as client:
            source: Literal["system", "instance"] = "system" if system else "instance"
            for chunk in client.instances.logs(str(instance["id"]), source=source, follow=follow):
                size += len(chunk)
                if text is None:
                    sys.stdout.buffer.write(chunk)
                    sys.stdout.buffer.flush()
                else:
                    click.echo(text.feed(chunk), nl=False)
    except KeyboardInterrupt:
        # There is no other way to end it.
        if not follow:
            raise
        return
    if not size:
        output.note("the log has ended without a word" if follow else "the log is empty so far")
    elif size >= LOG_BYTES_MAX and not follow:
        rest = command_about("logs", instance) + " -f" + (" --system" if system else "")
        output.note(f"this is its first MiB; all of it: {rest}")
