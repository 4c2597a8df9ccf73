"""What the use cases need of the log of events: all that happened, in one order, readable from any point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuherd.domain.instance.instance_event import Event
from gpuherd.ports.webhook_port import OutboxEntries


@dataclass(frozen=True)
class AccountEvent:
    """An event that belongs to no instance."""

    # Numbered when it is written.
    event: Event
    # Returns the webhooks of the numbered event; called in its transaction.
    outbox_entries_for: Callable[[Event], OutboxEntries]


@dataclass(frozen=True)
class LoggedEvent:
    """An event and its place in the log."""

    # Grows with every event; numbers may be missing, and those of one instance are in the order of its story.
    position: int
    event: Event
    # Of the instance; None for events of the account.
    name: str | None = None
    owner: str | None = None


@dataclass(frozen=True)
class EventFilter:
    """Which events are meant; nothing said means all."""

    # Only events of this owner's instances: those of the account are nobody's.
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
    """Some events, and how far the log was looked through for them."""

    events: tuple[LoggedEvent, ...]
    # Reading on after this misses nothing and repeats nothing.
    position: int
    # Whether there may be more at once.
    more: bool
    # Whether something behind `position` cannot be told yet, because a writer before it is not done.
    held_up: bool = False


EVERYTHING = EventFilter()


class EventLog(Protocol):
    """The events of all instances and of the account, until they are forgotten."""

    async def after(self, position: int, limit: int, wanted: EventFilter = EVERYTHING) -> EventPage:
        """Return the events behind a position, oldest first.

        What is returned once as looked through stays so: no event ever appears at or before `position`.
        """
        ...

    async def before(
        self, position: int | None, limit: int, wanted: EventFilter = EVERYTHING
    ) -> tuple[LoggedEvent, ...]:
        """Return the events before a position, or the latest of all, newest first."""
        ...

    async def newest(self) -> int:
        """Return the position at which the log ends now; 0 if it is empty."""
        ...

    async def highest(self) -> int:
        """Return the highest position that any reader, of whichever process, can have been told."""
        ...


class AccountEventLog(Protocol):
    """Where events of the account are written that go with nothing else."""

    async def append_account(self, events: Sequence[AccountEvent]) -> None:
        """Number events of the account and write them down with their webhooks, in one transaction.

        `StaleWrite` if another process numbered one at the same moment: nothing was written.
        """
        ...
