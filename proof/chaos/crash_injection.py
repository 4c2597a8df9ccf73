"""Where a process can die: every call of every port, before its effect and after it.

Death poisons all ports first. Python runs `finally` and `except` blocks when a task is cancelled, which
kill -9 would not; with poisoned ports whatever they try has no effect.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import iscoroutinefunction
from random import Random
from typing import Any

from gpuherd.ports.clock_port import Clock

# These change nothing, so that dying before and dying after them is the same.
READS = frozenset(
    {
        *(
            "get",
            "operation",
            "claimed",
            "claimed_operation",
            "find_named",
            "page",
            "all_live",
            "events",
            "attempts",
        ),
        *("ready_times_s", "refresh", "all_known", "witnesses", "any_unsettled", "last_list", "is_next"),
        *("stats", "unscheduled", "list_regions", "list_offers", "list_templates", "get_template"),
        *("check_registry_auth", "list_machines", "get_machine", "candidates", "entry", "records", "open"),
        *("list_all", "spending", "judge", "to_end", "samples", "due_for_use_look", "with_end"),
        *("ordered_since", "live_instances", "waiting_before", "waiting_with", "is_gone"),
    }
)

# Tells whether the process dies at this point: how many it has passed in its life, and the name of the call.
CrashPolicy = Callable[[int, str], bool]


CREATE_CRASH_FACTOR = 12


class ProcessKilled(BaseException):
    """What kill -9 looks like from inside: nothing after it has an effect."""


def never_crash(_point: int, _label: str) -> bool:
    return False


def crash_at(point: int) -> CrashPolicy:
    """Die at exactly this point."""
    return lambda passed, _label: passed == point


def crash_with_probability(rng: Random, odds: float) -> CrashPolicy:
    """Die at each point with these odds, and more often where money is spent."""

    def strikes(_passed: int, label: str) -> bool:
        return rng.random() < (odds * CREATE_CRASH_FACTOR if label.startswith("cloud.create") else odds)

    return strikes


class CrashInjector:
    """One life of the process. Its ports ask it before and after every call."""

    def __init__(
        self,
        crash_policy: CrashPolicy,
        clock: Clock,
        trace: Callable[[str], None],
        rng: Random,
        delay_odds: float,
    ):
        self.dead = False
        self.passed = 0
        self.labels: list[str] = []
        self._crash_policy = crash_policy
        self._clock = clock
        self._trace = trace
        self._rng = rng
        self.delay_odds = delay_odds
        self.on_death: Callable[[], None] = lambda: None

    def point(self, label: str) -> None:
        """Go past one point, or die there."""
        if self.dead:
            raise ProcessKilled
        self.passed += 1
        self._trace(label)
        if self._crash_policy(self.passed, label):
            self._trace(f"killed at {self.passed}")
            self.dead = True
            self.on_death()
            raise ProcessKilled

    async def maybe_delay(self) -> None:
        """Let others go first now and then, as a real store would."""
        if self._rng.random() < self.delay_odds:
            await self._clock.sleep(self._rng.uniform(0.0, 0.2))


class CrashablePort:
    """Any port, with points around its calls."""

    def __init__(self, port: Any, name: str, crash_injector: CrashInjector):
        self._port = port
        self._name = name
        self._crash_injector = crash_injector

    def __getattr__(self, attribute: str) -> Any:
        method = getattr(self._port, attribute)
        if not _waits(self._port.__class__, attribute):
            return method
        guarded = _crashable(
            method, f"{self._name}.{attribute}", self._crash_injector, reads=attribute in READS
        )
        # Found without this detour next time.
        self.__dict__[attribute] = guarded
        return guarded


@cache
def _waits(kind: type, attribute: str) -> bool:
    """Tell whether this is a method that must be awaited; asked for in every life, so remembered."""
    return iscoroutinefunction(getattr(kind, attribute, None))


def _crashable(
    method: Callable[..., Any], label: str, crash_injector: CrashInjector, *, reads: bool
) -> Callable[..., Any]:
    after = f"{label} done"

    async def call(*args: Any, **kwargs: Any) -> Any:
        crash_injector.point(label)
        if crash_injector.delay_odds:
            await crash_injector.maybe_delay()
        try:
            result = await method(*args, **kwargs)
        finally:
            if crash_injector.dead:
                raise ProcessKilled
        if not reads:
            crash_injector.point(after)
        return result

    return call
