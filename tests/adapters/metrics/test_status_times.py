"""Times in a status, told from the history alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from gpuherd.adapters.metrics.status_times import StatusTimes
from gpuherd.domain.instance.events import Event
from gpuherd.ports.instances import Change
from gpuherd.ports.metrics import NullMeter
from tests.support.builders import an_instance
from tests.support.fake_clock import START


@dataclass
class Notes(NullMeter):
    left: list[tuple[str, float]] = field(default_factory=list)

    def status_left(self, status: str, seconds: float) -> None:
        self.left.append((status, seconds))


@dataclass
class History:
    """Stands for the store of instances."""

    events_: list[Event]
    reads: int = 0

    async def events(self, _: str) -> tuple[Event, ...]:
        self.reads += 1
        return tuple(self.events_)


def moved(sequence: int, at_s: float, before: str, after: str) -> Event:
    return Event(
        "inst_1", sequence, "instance.moved", START + timedelta(seconds=at_s), before=before, after=after
    )


STORY = [
    moved(1, 0, "", "creating"),
    moved(2, 10, "creating", "running"),
    moved(3, 50, "running", "exited"),
    moved(4, 60, "exited", "running"),
    moved(5, 67, "running", "exited"),
    moved(6, 90, "exited", "running"),
]


async def told(*just_written: Event) -> tuple[list[tuple[str, float]], int]:
    notes, history = Notes(), History(STORY)
    times = StatusTimes(history, notes)  # type: ignore[arg-type]
    await times.saved(Change(an_instance(), events=just_written))
    return notes.left, history.reads


async def test_a_status_that_comes_again_is_measured_from_its_latest_beginning() -> None:
    assert await told(STORY[4]) == ([("running", 7.0)], 1)


async def test_what_others_have_written_since_does_not_count() -> None:
    assert await told(STORY[2]) == ([("running", 40.0)], 1)


async def test_two_moves_in_one_change_are_both_measured() -> None:
    assert await told(STORY[1], STORY[2]) == ([("creating", 10.0), ("running", 40.0)], 1)


async def test_a_change_that_moves_nothing_costs_no_read() -> None:
    assert await told() == ([], 0)
    assert await told(STORY[0], moved(7, 91, "", ""), moved(8, 92, "running", "running")) == ([], 0)


async def test_a_status_whose_beginning_nobody_knows_is_not_guessed() -> None:
    assert await told(moved(7, 95, "migrating", "running")) == ([], 1)
