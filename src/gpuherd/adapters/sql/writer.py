"""The one thread that writes: it commits together whatever is waiting, and tells each how it went."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection

from gpuherd.adapters.sql.failures import may_pass, unavailable
from gpuherd.adapters.sql.together import Outcome, Transactions, Work, run_together
from gpuherd.domain.errors import StoreUnavailable

T = TypeVar("T")

BATCH_MAX = 256
# How often work that stands alone is run when the connection is lost under it, or replicas block each other.
TRIES = 3
# Whoever was made to give way lets the others through first; at once, he would stand in their way again.
GIVE_WAY_S = 0.05


@dataclass(slots=True)
class _Item:
    work: Work
    # Whoever waits: a coroutine of this loop, or a thread if there is none.
    future: asyncio.Future[Any] | Future[Any]
    loop: asyncio.AbstractEventLoop | None = None
    rings: bool = False
    sure: bool = True


class Writer:
    """Takes work from any thread and any loop until it is closed."""

    def __init__(self, transactions: Transactions, closing: threading.Event, ring: Callable[[], None]):
        """`closing` is set when nobody should wait any longer; `ring` is called after a commit that rings."""
        self._transactions = transactions
        self._closing = closing
        self._ring = ring
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        # What each loop has asked for in its present round. Handed over together, it shares a commit; one by
        # one, the first would be committed alone, and the writer would fight the loop for the interpreter.
        self._gathered: dict[asyncio.AbstractEventLoop, list[_Item]] = {}
        # Nothing may be queued behind the word that ends the thread: nobody would ever do it.
        self._door = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="gpuherd-write", daemon=True)

    @property
    def waiting(self) -> int:
        """How many pieces of work nobody has begun yet."""
        return self._queue.qsize()

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    async def write(self, work: Callable[[Connection], T], *, rings: bool, sure: bool) -> T:
        """Run `work` in a transaction; return only after it is committed, and durably so if `sure`.

        Once handed over, the work is done even if the caller is cancelled.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._hand_over(_Item(work, done, loop, rings, sure))
        return await done

    def write_now(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction from a thread that may block."""
        done: Future[T] = Future()
        self._hand_over(_Item(work, done))
        return done.result()

    def close(self) -> None:
        """Take nothing more, finish what was handed over, and end."""
        with self._door:
            if self._closed:
                return
            self._closed = True
            for gathered in self._gathered.values():
                for item in gathered:
                    self._queue.put(item)
            self._gathered.clear()
            self._queue.put(None)
        # Whoever waits for a server that is away need not wait any longer.
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def refuse_when_closed(self) -> None:
        """Raise `StoreUnavailable` if nothing is taken any more."""
        if self._closed:
            raise StoreUnavailable("the database is closed")

    def _hand_over(self, item: _Item) -> None:
        with self._door:
            self.refuse_when_closed()
            if item.loop is None:
                self._queue.put(item)
            elif item.loop in self._gathered:
                self._gathered[item.loop].append(item)
            else:
                self._gathered[item.loop] = [item]
                item.loop.call_soon(self._send_off, item.loop)

    def _send_off(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._door:
            for item in self._gathered.pop(loop, ()):
                self._queue.put(item)

    def _loop(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, last = self._drain(first)
            self._commit(batch)
            if last:
                break

    def _drain(self, first: _Item) -> tuple[list[_Item], bool]:
        batch = [first]
        while len(batch) < BATCH_MAX:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if item is None:
                return batch, True
            batch.append(item)
        return batch, False

    def _commit(self, batch: list[_Item], tries: int = TRIES) -> None:
        try:
            sure = any(item.sure for item in batch)
            outcomes = run_together(self._transactions, [item.work for item in batch], sure=sure)
        except StoreUnavailable as error:
            # It could not be begun, and one by one each would wait as long for the same answer; or nobody
            # knows whether it was done, and it must not be done again.
            outcomes = [(None, type(error)(error.message)) for _ in batch]
        except Exception as error:
            if len(batch) > 1:
                # The commit, or the connection, failed. Each for itself: at most the guilty one is refused.
                for item in batch:
                    self._commit([item])
                return
            if tries > 1 and may_pass(error):
                self._closing.wait(GIVE_WAY_S)
                self._commit(batch, tries - 1)
                return
            outcomes = [(None, unavailable(error))]
        self._tell(list(zip(batch, outcomes, strict=True)))

    def _tell(self, ended: list[tuple[_Item, Outcome]]) -> None:
        """Tell everybody how it went, each loop with one call: to wake it costs more than to answer."""
        loops: dict[asyncio.AbstractEventLoop, list[tuple[_Item, Outcome]]] = {}
        for item, outcome in ended:
            if item.loop is None:
                _settle(item, outcome)
            else:
                loops.setdefault(item.loop, []).append((item, outcome))
        for loop, theirs in loops.items():
            # A loop that is closed has nobody left who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._tell_here, theirs)

    def _tell_here(self, ended: list[tuple[_Item, Outcome]]) -> None:
        for item, outcome in ended:
            # A caller who was cancelled meanwhile hears nothing; the work is done all the same.
            if not item.future.done():
                _settle(item, outcome)
        if any(item.rings and problem is None for item, (_, problem) in ended):
            self._ring()


def _settle(item: _Item, outcome: Outcome) -> None:
    result, problem = outcome
    if problem is None:
        item.future.set_result(result)
    else:
        item.future.set_exception(problem)
