"""What happened: the history of one instance, and the log of all."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpuherd.contract.codec.model import Model


class Event(Model, needs=("sequence", "type", "at")):
    """One fact of an instance's history."""

    sequence: int  # counts the events of one instance, from 1
    type: str
    at: datetime
    actor: str  # the id of a key, or `gpuherd`
    reason: str
    before: str | None  # the status before, where it changed
    after: str | None  # the status after, where it changed
    details: Mapping[str, Any]  # it depends on the type


class EventHistory(Model):
    """What happened to one instance, oldest first."""

    events: tuple[Event, ...]


class EventPlace(Model):
    """Where an event stands in the log of all, and whose it is."""

    id: int
    instance_id: str | None  # None where it concerns the account as a whole
    name: str | None  # of the instance


# The fields of the last base come first.
class LiveEvent(Event, EventPlace, needs=("id", "sequence", "type", "at")):
    """One fact, with its place among all. It is also the data of a server-sent event."""


class EventPage(Model):
    """One page of the log."""

    events: tuple[LiveEvent, ...]
    next_cursor: str | None  # of the next page, further back; None on the last
    last_event_id: str  # from here a stream can be resumed
