"""An event as one line for people."""

from __future__ import annotations

from rich.text import Text

from gpuherd.entrypoints.cli.render.output import safe
from gpuherd.entrypoints.cli.render.times import parse_time
from gpuherd.entrypoints.cli.runtime.connection import Json

STYLES = {
    "instance.ready": "green",
    "instance.failed": "red",
    "instance.timeout": "red",
    "instance.reclaim_notice": "yellow",
    "instance.orphan_detected": "yellow",
}
NAME_MAX, WHAT_WIDTH = 24, 16


def event_line(event: Json) -> Text:
    """Return id, time, name, what happened, and why. Nothing in it is obeyed by a terminal."""
    kind = str(event.get("type", "?"))
    at = parse_time(event.get("at"))
    line = Text(f"{safe(event.get('id', '?')):>6}  ", style="dim")
    # In local time.
    line.append(f"{at.astimezone():%Y-%m-%d %H:%M:%S}" if at else "-" * 19, style="default")
    line.append(f"  {_short(safe(event.get('name') or '(account)')):<{NAME_MAX}}", style="bold")
    line.append(f"  {safe(_what(kind)):<{WHAT_WIDTH}}", style=STYLES.get(kind, "cyan"))
    if why := _why(event):
        line.append(f"  {safe(why)}", style="default")
    line.rstrip()
    return line


def _what(kind: str) -> str:
    return kind.removeprefix("instance.").replace("_", " ")


def _why(event: Json) -> str:
    """Return the reason, or from where to where it went."""
    if reason := event.get("reason"):
        return str(reason)
    before, after = event.get("before"), event.get("after")
    return f"{before} -> {after}" if before and after else ""


def _short(name: str) -> str:
    return name if len(name) <= NAME_MAX else name[: NAME_MAX - 1] + "…"
