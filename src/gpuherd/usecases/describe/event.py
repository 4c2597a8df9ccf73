"""Events of the log as the world sees them, as JSON and as what a stream of server-sent events carries."""

from __future__ import annotations

from gpuherd.contract import event as shown
from gpuherd.domain.instance.events import ACCOUNT, Event
from gpuherd.ports.events import LoggedEvent
from gpuherd.usecases.compact_json import compact


def describe_event(it: Event) -> shown.Event:
    """Return one fact of an instance's history."""
    return shown.Event(
        sequence=it.sequence,
        type=it.type,
        at=it.at,
        actor=it.actor,
        reason=it.reason,
        before=it.before or None,
        after=it.after or None,
        details=it.details,
    )


def describe_logged(it: LoggedEvent) -> shown.LiveEvent:
    """Return an event with its place in the log and whose it is."""
    instance_id = None if it.event.instance_id == ACCOUNT else it.event.instance_id
    return shown.LiveEvent.extending(
        describe_event(it.event), id=it.position, instance_id=instance_id, name=it.name
    )


def event_frame(it: LoggedEvent) -> bytes:
    """Return an event as one message of a stream.

    JSON without blanks is one line whatever is in it: a line break in a name or a reason is escaped.
    """
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (
        it.position,
        it.event.type.encode(),
        compact(describe_logged(it)),
    )
