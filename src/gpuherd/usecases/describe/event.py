"""Events of the log as the world sees them, as JSON and as what a stream of server-sent events carries."""

from __future__ import annotations

from typing import Any

from gpuherd.domain.instance.events import ACCOUNT
from gpuherd.ports.events import LoggedEvent
from gpuherd.usecases.describe.instance import compact, describe_event


def describe_logged(it: LoggedEvent) -> dict[str, Any]:
    """Return an event with its place in the log and whose it is."""
    instance_id = None if it.event.instance_id == ACCOUNT else it.event.instance_id
    return {"id": it.position, "instanceId": instance_id, "name": it.name, **describe_event(it.event)}


def event_frame(it: LoggedEvent) -> bytes:
    """Return an event as one message of a stream.

    JSON without blanks is one line whatever is in it: a line break in a name or a reason is escaped.
    """
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (
        it.position,
        it.event.type.encode(),
        compact(describe_logged(it)),
    )
