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

from gpuherd.clock import Clock

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
        *("ready_times_s", "refresh", "all_known", "witnesses", "anything_moves", "last_list", "is_next"),
        *("stats", "unattended", "list_regions", "list_offers", "list_templates", "get_template"),
        *("check_registry_auth", "list_machines", "get_machine", "strays", "line", "records", "open"),
        *("ordered_since", "live_instances", "waiting_before", "waiting_with", "is_gone"),
    }
)

# Tells whether the process dies at this point: how many it has passed in its life, and the name of the call.
Fate = Callable[[int, str], bool]


NEAR_MONEY = 12


class Killed(BaseException):
    """What kill -9 looks like from inside: nothing after it has an effect."""


def immortal(_point: int, _label: str) -> bool:
    return False


def dies_at(point: int) -> Fate:
    """Die at exactly this point."""
    return lambda passed, _label: passed == point


def dies_with_odds(chance: Random, odds: float) -> Fate:
    """Die at each point with these odds, and more often where money is spent."""

    def strikes(_passed: int, label: str) -> bool:
        return chance.random() < (odds * NEAR_MONEY if label.startswith("cloud.create") else odds)

    return strikes


class Guard:
    """One life of the process. Its ports ask it before and after every call."""

    def __init__(
        self, fate: Fate, clock: Clock, trace: Callable[[str], None], chance: Random, delay_odds: float
    ):
        self.dead = False
        self.passed = 0
        self.labels: list[str] = []
        self._fate = fate
        self._clock = clock
        self._trace = trace
        self._chance = chance
        self.delay_odds = delay_odds
        self.on_death: Callable[[], None] = lambda: None

    def point(self, label: str) -> None:
        """Go past one point, or die there."""
        if self.dead:
            raise Killed
        self.passed += 1
        self._trace(label)
        if self._fate(self.passed, label):
            self._trace(f"killed at {self.passed}")
            self.dead = True
            self.on_death()
            raise Killed

    async def dawdle(self) -> None:
        """Let others go first now and then, as a real store would."""
        if self._chance.random() < self.delay_odds:
            await self._clock.sleep(self._chance.uniform(0.0, 0.2))


class Guarded:
    """Any port, with points around its calls."""

    def __init__(self, port: Any, name: str, guard: Guard):
        self._port = port
        self._name = name
        self._guard = guard

    def __getattr__(self, attribute: str) -> Any:
        method = getattr(self._port, attribute)
        if not _waits(type(self._port), attribute):
            return method
        guarded = _guarded(method, f"{self._name}.{attribute}", self._guard, reads=attribute in READS)
        # Found without this detour next time.
        self.__dict__[attribute] = guarded
        return guarded


@cache
def _waits(kind: type, attribute: str) -> bool:
    """Tell whether this is a method that must be awaited; asked for in every life, so remembered."""
    return iscoroutinefunction(getattr(kind, attribute, None))


def _guarded(method: Callable[..., Any], label: str, guard: Guard, *, reads: bool) -> Callable[..., Any]:
    after = f"{label} done"

    async def call(*args: Any, **kwargs: Any) -> Any:
        guard.point(label)
        if guard.delay_odds:
            await guard.dawdle()
        try:
            result = await method(*args, **kwargs)
        finally:
            if guard.dead:
                raise Killed
        if not reads:
            guard.point(after)
        return result

    return call
