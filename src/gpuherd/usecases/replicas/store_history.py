"""The history of the store: who remembers something of it hears when it has lost its newest part.

That happens when a standby that lagged behind is promoted, or a backup is put in place, under running
processes. What was committed last is then gone, numbers are given out a second time, and whatever was
concluded from the lost part must be concluded anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import structlog

from gpuherd.clock import Clock
from gpuherd.ports.flags import Flags

log = structlog.get_logger()

HISTORY_FLAG = "store_history"


class StoreHistory:
    """One for each process. Use it in the event loop only."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._subscribers: list[Callable[[], None]] = []
        self._reloads: list[Callable[[], Awaitable[object]]] = []
        # Those that have not worked since the last loss.
        self._pending: list[Callable[[], Awaitable[object]]] = []
        # When a loss was last noticed, as far as anybody remembers.
        self._lost_at: datetime | None = None

    @property
    def lost_at(self) -> datetime | None:
        """When the last loss was noticed; None if there was none."""
        return self._lost_at

    def is_recent(self, within: timedelta) -> bool:
        """Tell whether the last loss is no longer ago than this."""
        return self._lost_at is not None and self._clock.now() - self._lost_at <= within

    def subscribe(self, forget: Callable[[], None]) -> None:
        """Have `forget` called at each loss, before anybody is answered from what is left.

        It must be quick and must not fail.
        """
        self._subscribers.append(forget)

    def subscribe_reload(self, reload: Callable[[], Awaitable[object]]) -> None:
        """Have `reload` called soon after each loss, again and again until it works."""
        self._reloads.append(reload)

    def declare_lost(self, reason: str) -> None:
        """Have everybody forget what was concluded from the store."""
        self._lost_at = self._clock.now()
        self._pending = list(self._reloads)
        log.error(
            "database.history_lost",
            reason=reason,
            effect="everything remembered of it is read anew; nothing is rented before the account was seen",
        )
        for forget in self._subscribers:
            forget()

    async def reload(self) -> None:
        """Have read anew what has not been since the last loss. Call this every second or so."""
        while self._pending:
            pending = self._pending
            await pending[0]()
            del pending[0]

    async def compare(self, flags: Flags, identity: str | None) -> None:
        """Compare which history this is with the one that was in use before, and write it down.

        For a start, and after a loss: processes that start later must know of it. A history that cannot be
        named (None) cannot be compared.
        """
        if identity is None:
            return
        stored = await flags.get(HISTORY_FLAG)
        before, _, lost_at = (stored or identity).partition(" ")
        if before != identity and self._lost_at is None:
            self.declare_lost(f"the database is {identity}, and was {before} when it was last used")
        elif lost_at and self._lost_at is None:
            self._lost_at = datetime.fromisoformat(lost_at)
        word = identity if self._lost_at is None else f"{identity} {self._lost_at.isoformat()}"
        if word != stored:
            await flags.put(HISTORY_FLAG, word)
