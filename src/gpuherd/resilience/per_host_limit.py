"""Limits the concurrency per host and ejects failing hosts.

Each host gets few calls at once. A host that keeps failing gets none for a while.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass, field

from gpuherd.ports.clock_port import Clock

# The shortest wait before a caller without a seat asks again.
_PACE_MIN_S = 0.01


_WAIT_MAX_S = 30.0


# If calls are so short that a seat is free in a moment, the caller waits in line, because coming back costs
# more. A waiting caller occupies a worker that other hosts need, so lines are short too.
LINE_WAIT_S = 0.25


LINE_MAX = 6


@dataclass(slots=True)
class _Host:
    in_flight: int = 0
    failures: int = 0
    ejections: int = 0
    ejected_until: float = 0.0
    # The average duration of a call; each new call counts for a third.
    call_s: float = 0.0
    # Since when the last seat is taken.
    full_since: float = 0.0
    # When the next rejected caller may try again.
    next_turn: float = 0.0
    # The callers that wait for a seat; each learns whether it has one.
    line: deque[asyncio.Future[bool]] = field(default_factory=deque)

    @property
    def is_idle(self) -> bool:
        return not (self.in_flight or self.failures or self.ejections)


class HostGate:
    """Limits calls per host without blocking: `try_acquire` takes a seat or returns when to ask again.

    `failures` failed calls in a row eject a host for `first_s`. After that it gets one call at a time. If as
    many fail again, it is ejected for twice as long, up to `cap_s`, until one succeeds.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        per_host: int = 2,
        failures: int = 5,
        first_s: float = 30.0,
        cap_s: float = 3600.0,
        max_hosts: int = 10_000,
    ):
        if per_host < 1 or failures < 1 or max_hosts < 1:
            raise ValueError("per_host, failures and max_hosts must be at least 1")
        self._clock = clock
        self._per_host = per_host
        self._failures = failures
        self._first_s = first_s
        self._cap_s = cap_s
        self._max_hosts = max_hosts
        self._hosts: OrderedDict[str, _Host] = OrderedDict()

    def try_acquire(self, name: str) -> float:
        """Take a seat and return 0, or return after how many seconds to ask again."""
        now = self._clock.monotonic()
        host = self._hosts.setdefault(name, _Host())
        self._hosts.move_to_end(name)
        if now < host.ejected_until:
            return host.ejected_until - now
        if host.in_flight >= self._seats(host):
            return self._next_turn_s(host, now)
        _take_seat(host, now)
        self._forget_idle()
        return 0.0

    async def acquire(self, name: str) -> float:
        """Like `try_acquire`, but wait in line if a seat will be free in a moment."""
        host = self._hosts.get(name)
        if host is not None and self._is_free_soon(host) and await self._wait_in_line(host):
            return 0.0
        return self.try_acquire(name)

    def release(self, name: str, *, succeeded: bool | None, seconds: float) -> None:
        """Return the seat. `succeeded` None: the call says nothing about the host."""
        host = self._hosts[name]
        host.in_flight -= 1
        if succeeded is not None:
            host.call_s += (seconds - host.call_s) / 3
        if succeeded:
            host.failures = host.ejections = 0
        elif succeeded is False:
            self._failed(host)
        self._serve_line(host)
        if host.is_idle and not host.call_s:
            del self._hosts[name]

    def ejected_s(self, name: str) -> float:
        """Return for how long the host is still ejected."""
        host = self._hosts.get(name)
        return max(0.0, host.ejected_until - self._clock.monotonic()) if host else 0.0

    def __len__(self) -> int:
        """Return the number of known hosts."""
        return len(self._hosts)

    def _failed(self, host: _Host) -> None:
        host.failures += 1
        if host.failures < self._failures:
            return
        ejected_s = min(self._cap_s, self._first_s * 2.0 ** min(host.ejections, 60))
        host.ejected_until = self._clock.monotonic() + ejected_s
        host.ejections += 1
        host.failures = 0

    def _seats(self, host: _Host) -> int:
        # After an ejection, one call at a time tests the host.
        return 1 if host.ejections else self._per_host

    def _pace_s(self, host: _Host, now: float) -> float:
        """Return the average time between two free seats."""
        # A call that runs longer than earlier ones is the better estimate.
        return max(_PACE_MIN_S, max(host.call_s, now - host.full_since) / self._per_host)

    def _is_free_soon(self, host: _Host) -> bool:
        """Return True if the host has no seat now, but will have one in a moment."""
        now = self._clock.monotonic()
        if now < host.ejected_until or host.in_flight < self._seats(host) or len(host.line) >= LINE_MAX:
            return False
        return (len(host.line) + 1) * self._pace_s(host, now) <= LINE_WAIT_S

    async def _wait_in_line(self, host: _Host) -> bool:
        """Wait for a seat. Return True if this caller has one."""
        seat: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        host.line.append(seat)
        timeout = asyncio.ensure_future(self._clock.sleep(LINE_WAIT_S))
        timeout.add_done_callback(lambda _: _answer(seat, has_seat=False))
        try:
            return await seat
        except asyncio.CancelledError:
            if not seat.cancelled() and seat.result():
                # The seat was assigned at the last moment.
                host.in_flight -= 1
                self._serve_line(host)
            raise
        finally:
            timeout.cancel()
            with suppress(ValueError):
                host.line.remove(seat)

    def _serve_line(self, host: _Host) -> None:
        """Give free seats to waiting callers, first come, first served."""
        now = self._clock.monotonic()
        while host.line and now < host.ejected_until:
            _answer(host.line.popleft(), has_seat=False)
        while host.line and host.in_flight < self._seats(host):
            if _answer(host.line.popleft(), has_seat=True):
                _take_seat(host, now)

    def _next_turn_s(self, host: _Host, now: float) -> float:
        pace_s = self._pace_s(host, now)
        host.next_turn = max(host.next_turn, now) + pace_s
        if host.next_turn - now > _WAIT_MAX_S:
            # The line was longer than expected; it forms again.
            host.next_turn = now + pace_s
            return _WAIT_MAX_S
        return host.next_turn - now

    def _forget_idle(self) -> None:
        """Drop the host that has been idle longest, if there are too many."""
        if len(self._hosts) <= self._max_hosts:
            return
        idle = next((name for name, host in self._hosts.items() if not host.in_flight), None)
        if idle is not None:
            del self._hosts[idle]


def _take_seat(host: _Host, now: float) -> None:
    host.in_flight += 1
    host.full_since = now


def _answer(seat: asyncio.Future[bool], *, has_seat: bool) -> bool:
    """Tell a waiting caller whether it has a seat. Return True if it was still waiting."""
    if seat.done():
        return False
    seat.set_result(has_seat)
    return True
