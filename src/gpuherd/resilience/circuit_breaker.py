"""A circuit breaker.

It stops calls to a failing server, and tests with a few probes whether the server has recovered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Self

from gpuherd.ports.clock_port import Clock

# Each failed recovery doubles the next pause, up to this many times `recovery_s`.
RECOVERY_GROWTH_MAX = 4


# The duration of other callers' probes is unknown; a probe usually has its answer by then.
PROBING_RETRY_AFTER_S = 1.0


class BreakerState(StrEnum):
    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


class BreakerOpen(Exception):
    """Nothing was sent. Try again in `retry_after_s`."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"circuit breaker is open: try again in {retry_after_s:.1f} s")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class BreakerSnapshot:
    """Failures and calls of the last window, and since when the breaker has not been closed."""

    state: BreakerState
    failures: int
    calls: int
    opened_at: datetime | None


class Permit:
    """Permission for one call, answered by one verdict; further verdicts are ignored.

    As a context manager it gives the verdict itself if there is none: a clean exit is a success, an
    `Exception` a failure. A stopped task (above all, a cancelled one) says nothing about the server.
    """

    def __init__(self, report: Callable[[bool | None], None]) -> None:
        self._report: Callable[[bool | None], None] | None = report

    def success(self) -> None:
        self._settle(True)

    def failure(self) -> None:
        self._settle(False)

    def neutral(self) -> None:
        """Return the permit without a verdict."""
        self._settle(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.success()
        elif isinstance(error, Exception):
            self.failure()
        else:
            self.neutral()

    def _settle(self, succeeded: bool | None) -> None:
        report, self._report = self._report, None
        if report is not None:
            report(succeeded)


class CircuitBreaker:
    """Opens on `threshold` failures within `window_s`, if they are at least half of the calls in it.

    After `recovery_s` (twice that after one failed recovery, four times after more) up to `half_open_permits`
    calls at once may probe; as many successes close it, one failure opens it again. A verdict on a call that
    was admitted before the last change of state is stale and changes nothing.
    """

    def __init__(
        self,
        clock: Clock,
        threshold: int = 10,
        window_s: float = 60,
        recovery_s: float = 60,
        half_open_permits: int = 2,
    ) -> None:
        if threshold < 1 or half_open_permits < 1:
            raise ValueError("threshold and half_open_permits must be at least 1")
        self._clock = clock
        self._threshold = threshold
        self._recovery_s = recovery_s
        self._permits = half_open_permits
        self._window = _Window(window_s)
        self._state = BreakerState.CLOSED
        self._generation = 0
        self._probes = 0
        self._probe_successes = 0
        self._growth = 1
        self._probe_at = 0.0
        self._opened_at: datetime | None = None

    @property
    def state(self) -> BreakerState:
        if self._state is BreakerState.OPEN and self._clock.monotonic() >= self._probe_at:
            self._enter(BreakerState.HALF_OPEN)
        return self._state

    def acquire(self, probe_allowed: bool = True) -> Permit:
        """Admit one call or raise `BreakerOpen`.

        With `probe_allowed=False` the call waits until probes of others have succeeded. A call that costs
        money if its outcome is lost must not be the probe.
        """
        state = self.state
        if state is BreakerState.OPEN:
            raise BreakerOpen(self.retry_after_s())
        is_probe = state is BreakerState.HALF_OPEN
        if is_probe and not (probe_allowed and self._has_probe_left()):
            raise BreakerOpen(PROBING_RETRY_AFTER_S)
        self._probes += is_probe
        return Permit(partial(self._settle, self._generation, is_probe))

    def retry_after_s(self) -> float:
        """Return the seconds until a probe may be admitted; 0 if it may be now."""
        match self.state:
            case BreakerState.CLOSED:
                return 0.0
            case BreakerState.HALF_OPEN:
                return 0.0 if self._has_probe_left() else PROBING_RETRY_AFTER_S
            case BreakerState.OPEN:
                return self._probe_at - self._clock.monotonic()

    def snapshot(self) -> BreakerSnapshot:
        self._window.forget_before(self._clock.monotonic())
        return BreakerSnapshot(self.state, self._window.failures, self._window.calls, self._opened_at)

    def _has_probe_left(self) -> bool:
        return self._probes < self._permits

    def _settle(self, generation: int, is_probe: bool, succeeded: bool | None) -> None:
        # Even a stale probe was running until now, so it counts against the permits until now.
        self._probes -= is_probe
        if generation != self._generation or succeeded is None:
            return
        if is_probe:
            self._judge_probe(succeeded)
        else:
            self._judge_call(succeeded)

    def _judge_call(self, succeeded: bool) -> None:
        self._window.add(self._clock.monotonic(), succeeded)
        failures = self._window.failures
        if not succeeded and failures >= self._threshold and 2 * failures >= self._window.calls:
            self._open()

    def _judge_probe(self, succeeded: bool) -> None:
        if not succeeded:
            self._growth = min(self._growth * 2, RECOVERY_GROWTH_MAX)
            self._open()
            return
        self._probe_successes += 1
        if self._probe_successes >= self._permits:
            self._close()

    def _open(self) -> None:
        self._probe_at = self._clock.monotonic() + self._recovery_s * self._growth
        self._opened_at = self._opened_at or self._clock.now()
        self._enter(BreakerState.OPEN)

    def _close(self) -> None:
        self._window.clear()
        self._growth = 1
        self._opened_at = None
        self._enter(BreakerState.CLOSED)

    def _enter(self, state: BreakerState) -> None:
        self._state = state
        self._generation += 1
        self._probe_successes = 0


class _Window:
    """The verdicts of the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._verdicts: deque[tuple[float, bool]] = deque()
        self.failures = 0

    @property
    def calls(self) -> int:
        return len(self._verdicts)

    def add(self, now: float, succeeded: bool) -> None:
        self.forget_before(now)
        self._verdicts.append((now, succeeded))
        self.failures += not succeeded

    def forget_before(self, now: float) -> None:
        while self._verdicts and self._verdicts[0][0] <= now - self._seconds:
            _, succeeded = self._verdicts.popleft()
            self.failures -= not succeeded

    def clear(self) -> None:
        self._verdicts.clear()
        self.failures = 0
