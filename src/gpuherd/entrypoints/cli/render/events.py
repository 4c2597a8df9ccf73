"""An event as one line for people."""

from __future__ import annotations

from rich.text import Text

from gpuherd.contract.webhook_models import LiveEvent
from gpuherd.entrypoints.cli.render.output import safe

STYLES = {
    "instance.ready": "green",
    "instance.failed": "red",
    "instance.timeout": "red",
    "instance.reclaim_notice": "yellow",
    "instance.waiting": "yellow",
    "instance.granted": "green",
    "instance.orphan_detected": "yellow",
}
NAME_MAX, WHAT_WIDTH = 24, 17


def event_line(event: LiveEvent) -> Text:
    """Return id, time, name, what happened, and why. Nothing in it is obeyed by a terminal."""
    line = Text(f"{event.id:>6}  ", style="dim")
    # In local time.
    line.append(f"{event.at.astimezone():%Y-%m-%d %H:%M:%S}", style="default")
    line.append(f"  {_short(safe(event.name or '(account)')):<{NAME_MAX}}", style="bold")
    line.append(f"  {safe(_what(event.type)):<{WHAT_WIDTH}}", style=STYLES.get(event.type, "cyan"))
    if why := _why(event):
        line.append(f"  {safe(why)}", style="default")
    line.rstrip()
    return line


def _what(kind: str) -> str:
    return kind.removeprefix("instance.").replace("_", " ")


def _why(event: LiveEvent) -> str:
    """Return the reason, or from where to where it went."""
    if event.reason:
        return event.reason
    return f"{event.before} -> {event.after}" if event.before and event.after else ""


def _short(name: str) -> str:
    return name if len(name) <= NAME_MAX else name[: NAME_MAX - 1] + "…"
