"""A list proves presence at once, and absence only slowly, and never when something speaks against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuherd.domain.clock_reading import ClockReading
from gpuherd.domain.cloud.machine import Listing, Machine, Phase
from gpuherd.domain.cloud.observation import (
    ListRecord,
    ObservedMachine,
    SettlingPolicy,
    Witness,
    diff_listing,
    is_proven_absent,
    is_proven_not_created,
    judge_witness,
)

SENT = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE = SettlingPolicy()
SEEN, NONE, MISSING = Witness.SEEN, Witness.NONE, Witness.MISSING


def at(seconds: float) -> datetime:
    return SENT + timedelta(seconds=seconds)


def a_list(started_s: float, witness: Witness = SEEN, complete: bool = True, took_s: float = 1) -> ListRecord:
    return ListRecord(at(started_s), at(started_s + took_s), complete, witness)


def seen_at(*starts_s: float) -> list[ListRecord]:
    return [a_list(start) for start in starts_s]


def alone_at(*starts_s: float) -> list[ListRecord]:
    return [a_list(start, NONE) for start in starts_s]


# --- what a list is worth ---


def test_a_list_is_worth_what_it_shows_of_ours(subtests: pytest.Subtests) -> None:
    for case, candidates, listed, worth in [
        ("we own nothing", [], [], NONE),
        ("we own nothing, others do", [], ["m-9"], NONE),
        ("one of ours is there", ["m-1", "m-2"], ["m-2", "m-9"], SEEN),
        ("none of ours is there", ["m-1", "m-2"], ["m-9"], MISSING),
        ("empty list", ["m-1"], [], MISSING),
    ]:
        with subtests.test(case):
            assert judge_witness(iter(candidates), iter(listed)) is worth


def test_a_list_is_believed_when_it_is_whole_and_not_contradicted(subtests: pytest.Subtests) -> None:
    for complete, witness, believable in [
        (True, SEEN, True),
        (True, NONE, True),
        (True, MISSING, False),
        (False, SEEN, False),
        (False, NONE, False),
    ]:
        with subtests.test(complete=complete, witness=witness, believable=believable):
            assert a_list(0, witness, complete).believable is believable


@pytest.mark.parametrize(
    ("settle_s", "alone_s", "witness_age_s", "spacing_s", "absence_s"),
    [(180, 900, 180, 20, 10), (18, 90, 18, 2, 1), (1800, 9000, 300, 200, 100)],
)
def test_all_patience_scales_with_the_settling_time(
    settle_s: float, alone_s: float, witness_age_s: float, spacing_s: float, absence_s: float
) -> None:
    settling = SettlingPolicy(timedelta(seconds=settle_s))
    spans = (
        settling.settle_without_witness,
        settling.witness_age,
        settling.list_spacing,
        settling.absence_spacing,
    )
    assert [it.total_seconds() for it in spans] == [alone_s, witness_age_s, spacing_s, absence_s]


# --- giving up a create of unknown outcome ---


def test_a_create_is_given_up_only_on_good_evidence(subtests: pytest.Subtests) -> None:
    for case, lists, verdict in [
        ("three lists, the last after the settling time", seen_at(140, 160, 180), True),
        ("the first may be early", seen_at(1, *range(20, 181, 20)), True),
        ("many lists close together", seen_at(*range(2, 184, 2)), True),
        ("the last just before the settling time", seen_at(139.9, 159.9, 179.9), False),
        ("no look late enough, however late it is now", seen_at(100, 120, 140), False),
        ("no list", [], False),
        ("two lists", seen_at(160, 180), False),
        ("too close together", seen_at(170, 175, 180, 185), False),
        ("one gap just too short", seen_at(140.1, 160, 180), False),
        ("a list that began with the call says nothing", seen_at(0, 160, 180), False),
        ("lists older than the call say nothing", seen_at(-40, -20, 180), False),
        ("without a witness it takes five times as long", alone_at(860, 880, 900), True),
        ("without a witness, just before that", alone_at(859, 879, 899), False),
        ("without a witness, after the short time", alone_at(140, 160, 180), False),
        (
            "a witness appears and stays for three",
            [*alone_at(20, 40, 60, 80, 100, 120), *seen_at(140, 160, 180)],
            True,
        ),
        ("lists before the witness do not count", [*alone_at(20, 40, 140), *seen_at(160, 180)], False),
        ("nor do they help when it appears late", [*alone_at(860, 880), *seen_at(900)], False),
        ("nor does a witness that is gone again", [*seen_at(840, 860), *alone_at(880, 900)], False),
        ("the last worth is what counts", [*seen_at(140, 160, 180), *alone_at(200)], False),
        ("incomplete list", [*seen_at(140, 160), a_list(170, SEEN, complete=False), *seen_at(180)], False),
        ("list without its witness", [*seen_at(140, 160), a_list(170, MISSING), *seen_at(180)], False),
        ("the latest list is a lie", [*seen_at(140, 160, 180), a_list(181, MISSING)], False),
        ("three clean lists after a lie", [a_list(120, MISSING), *seen_at(140, 160, 180)], True),
        ("a lie without a witness", [*alone_at(860, 880), a_list(890, MISSING), *alone_at(900)], False),
    ]:
        with subtests.test(case):
            assert is_proven_not_created(SENT, watched(lists), at(100_000), PATIENCE) is verdict


def watched(lists: list[ListRecord]) -> list[ListRecord]:
    """Return the lists with worthless ones before them, so that no time passes unwatched."""
    first_s = int((lists[0].started_at - SENT).total_seconds()) if lists else 0
    return [a_list(second, MISSING) for second in range(20, first_s, 20)] + lists


@pytest.mark.parametrize("jump_s", [121, 3600, 10**6])
def test_a_clock_that_jumps_ahead_is_not_time_that_was_watched(jump_s: int) -> None:
    lists = seen_at(20, 40, *(step + jump_s for step in range(40, 160, 20)))
    assert not is_proven_not_created(SENT, lists, at(10**7), PATIENCE)
    longer = [*lists, *seen_at(160 + jump_s, 180 + jump_s)]
    assert is_proven_not_created(SENT, longer, at(10**7), PATIENCE)


def test_a_list_that_is_not_finished_yet_proves_nothing() -> None:
    lists = watched([*seen_at(140, 160), a_list(180, took_s=30)])
    assert not is_proven_not_created(SENT, lists, at(209), PATIENCE)
    assert is_proven_not_created(SENT, lists, at(210), PATIENCE)


def test_a_shorter_settling_time_shortens_everything() -> None:
    lists = seen_at(2, 4, 6, 8, 10, 12, 14, 16, 18)
    assert not is_proven_not_created(SENT, lists, at(20), PATIENCE)
    assert is_proven_not_created(SENT, lists, at(20), SettlingPolicy(timedelta(seconds=18)))


records = st.builds(
    a_list,
    st.integers(-100, 1500),
    st.sampled_from([SEEN, SEEN, NONE, NONE, MISSING]),
    st.sampled_from([True, True, True, False]),
    st.integers(0, 20),
)
# Long runs of one kind, as in life, so that the answer is often yes.
runs = st.builds(
    lambda start, count, gap, witness: [a_list(start + i * gap, witness) for i in range(count)],
    st.integers(-100, 1000),
    st.integers(2, 8),
    st.integers(15, 200),
    st.sampled_from([SEEN, NONE]),
)


def in_order(lists: Sequence[ListRecord]) -> list[ListRecord]:
    return sorted(lists, key=lambda it: it.started_at)


histories = st.builds(
    lambda runs, strays: in_order([*(it for run in runs for it in run), *strays]),
    st.lists(runs, min_size=1, max_size=2),
    st.lists(records, max_size=2),
)
nows = st.integers(0, 3000) | st.just(10_000)


@settings(deadline=None, max_examples=300)
@given(histories, nows)
def test_nothing_is_given_up_before_its_time_or_on_fewer_than_three_lists(
    lists: list[ListRecord], now_s: int
) -> None:
    if not is_proven_not_created(SENT, lists, at(now_s), PATIENCE):
        return
    assert now_s >= 180
    counted = [it for it in lists if it.started_at > SENT and it.believable]
    assert len(counted) >= 3
    assert counted[-1].started_at - SENT >= timedelta(seconds=180 if counted[-1].witness is SEEN else 900)
    latest = [it for it in lists if it.started_at > SENT][-3:]
    assert {(it.believable, it.witness) for it in latest} == {(True, counted[-1].witness)}


@settings(deadline=None)
@given(histories, st.sampled_from([a_list(5000, MISSING), a_list(5000, SEEN, complete=False)]))
def test_one_list_that_cannot_be_believed_takes_every_yes_back(
    lists: list[ListRecord], lie: ListRecord
) -> None:
    after = [*lists, lie, *seen_at(5020, 5040)]
    assert not is_proven_not_created(SENT, after, at(10_000), PATIENCE)
    assert is_proven_not_created(SENT, [*after, *seen_at(*range(5060, 5260, 20))], at(10_000), PATIENCE)


@settings(deadline=None)
@given(histories, nows, st.integers(-100, 0))
def test_lists_from_before_the_call_change_nothing(lists: list[ListRecord], now_s: int, early_s: int) -> None:
    since = [it for it in lists if it.started_at > SENT]
    before = in_order([*seen_at(early_s), a_list(early_s - 1, MISSING), *alone_at(early_s - 50)])
    assert is_proven_not_created(SENT, [*before, *since], at(now_s), PATIENCE) is is_proven_not_created(
        SENT, since, at(now_s), PATIENCE
    )


# --- a machine that we know ---


def a_machine(cloud_id: str = "m-1", phase: Phase = Phase.RUNNING, **changes: Any) -> Machine:
    return Machine(cloud_id, "job", phase, phase.value, **changes)


def sighted(cloud_id: str = "m-1", since_s: float = 0, **changes: Any) -> ObservedMachine:
    return ObservedMachine(a_machine(cloud_id), at(since_s), at(since_s), **changes)


def missed(lists: int, since_s: float, until_s: float) -> ObservedMachine:
    return ObservedMachine(a_machine(), at(0), at(until_s), missing_since=at(since_s), missing_lists=lists)


@pytest.mark.parametrize(
    ("sighting", "gone"),
    [
        pytest.param(sighted(), False, id="listed"),
        pytest.param(missed(1, 100, 100), False, id="missed once"),
        pytest.param(missed(2, 100, 110), True, id="missed twice, ten seconds apart"),
        pytest.param(missed(2, 100, 109.9), False, id="missed twice, too close together"),
        pytest.param(missed(1, 100, 900), False, id="missed once, long ago"),
        pytest.param(
            ObservedMachine(a_machine(phase=Phase.ABSENT), at(0), at(0)), True, id="listed as removed"
        ),
        pytest.param(
            ObservedMachine(a_machine(phase=Phase.REMOVING), at(0), at(0)), False, id="being removed"
        ),
    ],
)
@pytest.mark.parametrize("asked_at", [None, at(0)], ids=["", "asked"])
def test_a_listed_machine_is_gone_when_two_lists_miss_it(
    sighting: ObservedMachine, asked_at: datetime | None, gone: bool
) -> None:
    # The lists themselves are already counted in the sighting.
    assert is_proven_absent(sighting, asked_at, seen_at(500, 600, 700), PATIENCE) is gone


def test_a_machine_that_was_never_listed_is_gone_only_after_its_removal(subtests: pytest.Subtests) -> None:
    for case, asked_s, lists, gone in [
        ("nobody asked for its removal", None, seen_at(100, 200, 300), False),
        ("no list", 100, [], False),
        ("one list", 100, seen_at(200), False),
        ("two lists", 100, seen_at(101, 111), True),
        ("two lists, too close together", 100, seen_at(101, 110.9), False),
        ("many lists, the last late enough", 100, seen_at(101, 105, 111), True),
        ("lists from before the removal", 100, seen_at(90, 100, 111), False),
        ("a list without its witness", 100, [a_list(101, MISSING), *seen_at(111)], False),
        ("an incomplete list", 100, [a_list(101, complete=False), *seen_at(111)], False),
    ]:
        with subtests.test(case):
            asked_at = None if asked_s is None else at(asked_s)
            assert is_proven_absent(None, asked_at, lists, PATIENCE) is gone


# --- what one list changes ---


def shown(
    *machines: Machine,
    started_s: float = 100,
    took_s: float = 1,
    complete: bool = True,
    witness: Witness = SEEN,
) -> tuple[Listing, ListRecord]:
    record = a_list(started_s, witness, complete, took_s)
    return Listing(machines, complete, record.started_at, record.finished_at), record


def changes(known: Sequence[ObservedMachine], it: tuple[Listing, ListRecord]) -> list[ObservedMachine]:
    return diff_listing({known_one.machine.cloud_id: known_one for known_one in known}, *it, PATIENCE)


def test_a_new_machine_is_seen_for_the_first_time() -> None:
    assert changes([], shown(a_machine())) == [ObservedMachine(a_machine(), at(101), at(101))]


def test_a_machine_that_looks_the_same_is_no_news() -> None:
    assert changes([sighted()], shown(a_machine())) == []


@pytest.mark.parametrize(
    "machine",
    [a_machine(phase=Phase.STOPPED), a_machine(error="broken"), a_machine(spot_status="reclaiming")],
    ids=["phase", "error", "spot status"],
)
def test_a_machine_that_looks_different_keeps_its_first_sighting(machine: Machine) -> None:
    assert changes([sighted()], shown(machine)) == [ObservedMachine(machine, at(0), at(101))]


@pytest.mark.parametrize(
    "flaw", [{"complete": False}, {"witness": MISSING}], ids=["incomplete", "without its witness"]
)
def test_a_list_that_is_not_believed_still_shows_what_it_shows(flaw: dict[str, Any]) -> None:
    new, stopped = a_machine("m-2"), a_machine(phase=Phase.STOPPED)
    assert changes([sighted()], shown(new, stopped, **flaw)) == [
        ObservedMachine(new, at(101), at(101)),
        ObservedMachine(stopped, at(0), at(101)),
    ]


@pytest.mark.parametrize(
    "flaw", [{"complete": False}, {"witness": MISSING}], ids=["incomplete", "without its witness"]
)
@pytest.mark.parametrize("known", [sighted(), missed(1, 20, 20)], ids=["listed so far", "missed once"])
def test_a_list_that_is_not_believed_misses_nothing(known: ObservedMachine, flaw: dict[str, Any]) -> None:
    assert changes([known], shown(**flaw)) == []


def test_a_machine_that_is_not_listed_is_missed_since_that_list() -> None:
    assert changes([sighted()], shown()) == [missed(1, 101, 101)]


def test_a_machine_seen_after_the_list_began_is_not_missed(subtests: pytest.Subtests) -> None:
    for seen_s, counts in [(99.9, True), (100, False), (100.5, False), (101, False), (105, False)]:
        with subtests.test(seen_s=seen_s, counts=counts):
            assert bool(changes([sighted(since_s=seen_s)], shown())) is counts


@pytest.mark.parametrize(
    ("started_s", "expected"),
    [(108.9, []), (109, [missed(2, 100, 110)]), (500, [missed(2, 100, 501)])],
    ids=["too early", "ten seconds later", "much later"],
)
def test_a_second_miss_counts_only_some_time_after_the_first(
    started_s: float, expected: list[ObservedMachine]
) -> None:
    assert changes([missed(1, 100, 100)], shown(started_s=started_s)) == expected


def test_after_two_misses_a_third_is_no_news() -> None:
    assert changes([missed(2, 50, 60)], shown(started_s=1000)) == []


@pytest.mark.parametrize("flaw", [{}, {"complete": False}, {"witness": MISSING}])
def test_a_machine_that_is_back_is_not_missing_any_more(flaw: dict[str, Any]) -> None:
    assert changes([missed(2, 50, 60)], shown(a_machine(), **flaw)) == [
        ObservedMachine(a_machine(), at(0), at(101))
    ]


def test_another_machine_under_the_id_of_one_that_is_gone_is_seen_for_the_first_time() -> None:
    other = replace(a_machine(), env_tag="of another call")
    assert changes([missed(2, 50, 60)], shown(other)) == [ObservedMachine(other, at(101), at(101))]
    assert changes([sighted()], shown(other)) == [ObservedMachine(other, at(0), at(101))]


def test_each_machine_is_judged_by_itself() -> None:
    known = [sighted("same"), sighted("gone"), sighted("other"), missed(1, 5, 5)]
    stopped = a_machine("other", Phase.STOPPED)
    listing = shown(a_machine("same"), stopped, a_machine("new"))
    assert {it.machine.cloud_id: it.missing_lists for it in changes(known, listing)} == {
        "other": 0,
        "new": 0,
        "gone": 1,
        "m-1": 2,
    }


looks = st.lists(
    st.tuples(st.integers(1, 15), st.booleans(), st.sampled_from([SEEN, NONE, MISSING]), st.booleans()),
    max_size=20,
)


@settings(deadline=None, max_examples=300)
@given(looks)
def test_a_machine_is_gone_only_after_two_believable_lists_without_it(
    looks: list[tuple[int, bool, Witness, bool]],
) -> None:
    known = {"m-1": sighted()}
    misses: list[datetime] = []
    now_s = 0
    for gap_s, present, witness, complete in looks:
        now_s += gap_s
        listing, record = shown(
            *([a_machine()] if present else []),
            started_s=now_s,
            took_s=0.5,
            witness=witness,
            complete=complete,
        )
        known.update((it.machine.cloud_id, it) for it in diff_listing(known, listing, record, PATIENCE))
        if present:
            misses.clear()
        elif record.believable:
            misses.append(record.finished_at)
        proven = len(misses) >= 2 and misses[-1] - misses[0] >= PATIENCE.absence_spacing
        assert is_proven_absent(known["m-1"], None, [], PATIENCE) is proven
        assert known["m-1"] == replace(known["m-1"], machine=a_machine(), first_seen_at=at(0))


def read_at(uptime_s: float, wall_s: float | None = None) -> ClockReading:
    return ClockReading(at(uptime_s if wall_s is None else wall_s), timedelta(seconds=uptime_s), "boot")


def test_a_list_is_as_old_as_its_begin() -> None:
    """On its first page it shows what was so minutes before its last."""
    made = replace(a_list(0, took_s=290), reading=read_at(290))
    assert made.age(read_at(320)) == timedelta(seconds=320)
    # By whichever clock it is older: one of them was set since.
    assert made.age(read_at(320, wall_s=300)) == timedelta(seconds=320)


def test_how_old_a_list_is_nobody_can_say_without_a_reading_or_where_the_clock_was_set_back_in_it() -> None:
    assert replace(a_list(60, took_s=-59), reading=read_at(1)).age(read_at(2)) is None
    assert a_list(0).age(read_at(2)) is None
