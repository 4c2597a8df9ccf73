"""However writers overlap, no number is called sure that may still appear, and none is waited for in vain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuherd.adapters.stores.event_store import GapTracker, InFlightWriters

COMMIT, UNDO, WRITE, LOOK, LISTEN = "commit", "undo", "write", "look", "listen"
STEPS = st.lists(
    st.tuples(st.sampled_from([COMMIT, UNDO, WRITE, LOOK, LISTEN]), st.integers(0, 3)), max_size=80
)


class Table:
    """A table of events as PostgreSQL would show it, with four who write."""

    def __init__(self) -> None:
        self.visible: set[int] = set()
        self.writing: dict[str, list[int]] = {}
        self.given_out = self.begun = 0
        self.open: dict[int, str] = {}

    def write(self, who: int) -> None:
        if who not in self.open:
            self.begun += 1
            self.open[who] = f"{who}/{self.begun}"
            self.writing[self.open[who]] = []
        self.given_out += 1
        self.writing[self.open[who]].append(self.given_out)

    def end(self, who: int, *, commit: bool) -> None:
        if who in self.open:
            numbers = self.writing.pop(self.open.pop(who))
            self.visible |= set(numbers) if commit else set()

    def numbers(self, after: int) -> list[int]:
        return sorted(it for it in self.visible if it > after)

    def writers(self) -> InFlightWriters:
        return InFlightWriters(max(self.visible, default=0), frozenset(self.writing))


def play(steps: list[tuple[str, int]]) -> tuple[Table, GapTracker]:
    table, gaps = Table(), GapTracker()
    for step, who in steps:
        if step == WRITE:
            table.write(who)
        elif step == LOOK:
            gaps.advance(table.numbers(gaps.watermark))
        elif step == LISTEN:
            gaps.observe_writers(table.writers())
        else:
            table.end(who, commit=step == COMMIT)
        missing = {number for numbers in table.writing.values() for number in numbers}
        assert all(number > gaps.watermark for number in missing), (steps, gaps)
    return table, gaps


@given(STEPS)
def test_nothing_is_sure_that_somebody_may_still_bring(steps: list[tuple[str, int]]) -> None:
    play(steps)


@given(STEPS)
def test_when_all_have_ended_everything_is_sure(steps: list[tuple[str, int]]) -> None:
    table, gaps = play(steps)
    for who in range(4):
        table.end(who, commit=who % 2 == 0)
    gaps.observe_writers(table.writers())
    assert gaps.watermark >= max(table.visible, default=0)


def test_writers_that_never_cease_do_not_hold_up_for_ever() -> None:
    table, gaps = Table(), GapTracker()
    for turn in range(1, 41):
        # There is always somebody writing, whom the look before has seen too, but nobody writes for ever.
        table.write(turn % 2)
        table.write(2)
        table.end(2, commit=True)
        gaps.advance(table.numbers(gaps.watermark))
        gaps.observe_writers(table.writers())
        table.end((turn + 1) % 2, commit=False)
    assert gaps.watermark > 60
