"""The log of events: all events in one order, readable from any point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuherd.domain.instance.instance_event import Event
from gpuherd.ports.webhook_port import OutboxEntries


@dataclass(frozen=True)
class AccountEvent:
    """An event without an instance."""

    # Numbered when it is written.
    event: Event
    # Returns the webhooks of the numbered event. The store calls it in the event's transaction.
    outbox_entries_for: Callable[[Event], OutboxEntries]


@dataclass(frozen=True)
class LoggedEvent:
    """An event and its place in the log."""

    # It grows with every event, and numbers may be missing. Events of one instance are in their own order.
    position: int
    event: Event
    # Name of the instance; None for account events.
    name: str | None = None
    owner: str | None = None


@dataclass(frozen=True)
class EventFilter:
    """Which events to return; by default all."""

    # Only events of this owner's instances. Account events have no owner.
    owner: str | None = None
    instance_id: str | None = None
    type: str | None = None

    def wants(self, it: LoggedEvent) -> bool:
        return (
            (self.owner is None or it.owner == self.owner)
            and (self.instance_id is None or it.event.instance_id == self.instance_id)
            and (self.type is None or it.event.type == self.type)
        )


@dataclass(frozen=True)
class EventPage:
    """Some events, and the position up to which the log was searched."""

    events: tuple[LoggedEvent, ...]
    # Reading from here misses nothing and repeats nothing.
    position: int
    # True if more events may be available now.
    more: bool
    # True if an event behind `position` cannot be returned yet, because an earlier writer has not finished.
    held_up: bool = False


EVERYTHING = EventFilter()


class EventLog(Protocol):
    """The events of all instances and of the account, until they are pruned."""

    async def after(self, position: int, limit: int, wanted: EventFilter = EVERYTHING) -> EventPage:
        """Return the events after a position, oldest first.

        A searched position is final: no event ever appears at or before `position` later.
        """
        ...

    async def before(
        self, position: int | None, limit: int, wanted: EventFilter = EVERYTHING
    ) -> tuple[LoggedEvent, ...]:
        """Return the events before a position, or the latest of all, newest first."""
        ...

    async def newest(self) -> int:
        """Return the position of the last event; 0 if the log is empty."""
        ...

    async def highest(self) -> int:
        """Return the highest position that any reader of any process can have received."""
        ...


class AccountEventLog(Protocol):
    """Writes account events that belong to no other change."""

    async def append_account(self, events: Sequence[AccountEvent]) -> None:
        """Number account events and write them with their webhooks, in one transaction.

        `StaleWrite` if another process numbered one at the same moment: nothing was written.
        """
        ...
