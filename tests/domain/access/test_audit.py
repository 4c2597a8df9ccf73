"""The chain: whatever is changed, moved, added or taken out, the first broken entry is named."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.audit import NO_HASH, AuditEntry, Deed, first_broken, sealed
from tests.support.fake_clock import START

WORDS = st.text(max_size=5)
DEEDS = st.lists(
    st.builds(
        Deed,
        st.integers(0, 10**6).map(lambda s: START + timedelta(microseconds=s)),
        WORDS,
        WORDS,
        WORDS,
        WORDS,
        WORDS,
        WORDS,
    ),
    min_size=1,
    max_size=8,
)
FIELDS = st.sampled_from(["actor", "action", "target", "before", "after", "request_id"])


def chain(deeds: list[Deed]) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    for deed in deeds:
        last = entries[-1] if entries else None
        entries.append(sealed(deed, last.n if last else 0, last.hash if last else NO_HASH))
    return entries


@given(DEEDS)
def test_an_untouched_chain_holds_in_one_piece_and_in_two(deeds: list[Deed]) -> None:
    entries = chain(deeds)
    assert [it.n for it in entries] == list(range(1, len(deeds) + 1))
    assert first_broken(entries) is None
    assert first_broken(entries[1:], entries[0].n, entries[0].hash) is None


@given(DEEDS, st.data())
def test_a_changed_word_is_found(deeds: list[Deed], data: st.DataObject) -> None:
    entries = chain(deeds)
    place = data.draw(st.integers(0, len(entries) - 1))
    field = data.draw(FIELDS)
    it = entries[place]
    forged = replace(it.deed, **{field: getattr(it.deed, field) + "x"})
    assert first_broken([*entries[:place], replace(it, deed=forged), *entries[place + 1 :]]) == it.n
    late = replace(it.deed, at=it.deed.at + timedelta(microseconds=1))
    assert first_broken([*entries[:place], replace(it, deed=late), *entries[place + 1 :]]) == it.n


@given(DEEDS, st.data())
def test_an_entry_that_was_taken_out_is_missed_unless_it_was_the_last(
    deeds: list[Deed], data: st.DataObject
) -> None:
    entries = chain(deeds)
    place = data.draw(st.integers(0, len(entries) - 1))
    left = entries[:place] + entries[place + 1 :]
    assert first_broken(left) == (None if place == len(entries) - 1 else place + 1)


@given(DEEDS)
def test_a_forger_would_have_to_write_everything_anew(deeds: list[Deed]) -> None:
    entries = chain([*deeds, deeds[0]])
    forged = chain([replace(deeds[0], actor=deeds[0].actor + "x")])[0]
    assert first_broken([forged, *entries[1:]]) == 2


def test_fields_cannot_flow_into_each_other() -> None:
    one = Deed(START, "a", "bc", "t")
    other = Deed(START, "ab", "c", "t")
    assert chain([one])[0].hash != chain([other])[0].hash


def test_the_same_moment_in_another_zone_is_the_same_entry() -> None:
    there = START.astimezone(timezone(timedelta(hours=8)))
    assert chain([Deed(START, "a", "b", "c")])[0].hash == chain([Deed(there, "a", "b", "c")])[0].hash
