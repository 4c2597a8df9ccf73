"""The chain: whatever is changed, moved, added or taken out, the first broken entry is named."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.audit import (
    NO_HASH,
    AuditEntry,
    AuditRecord,
    chained,
    first_broken_entry,
)
from tests.support.fake_clock import START

WORDS = st.text(max_size=5)
DEEDS = st.lists(
    st.builds(
        AuditRecord,
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


def chain(audit_records: list[AuditRecord]) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    for audit_record in audit_records:
        last = entries[-1] if entries else None
        entries.append(chained(audit_record, last.n if last else 0, last.hash if last else NO_HASH))
    return entries


@given(DEEDS)
def test_an_untouched_chain_holds_in_one_piece_and_in_two(audit_records: list[AuditRecord]) -> None:
    entries = chain(audit_records)
    assert [it.n for it in entries] == list(range(1, len(audit_records) + 1))
    assert first_broken_entry(entries) is None
    assert first_broken_entry(entries[1:], entries[0].n, entries[0].hash) is None


@given(DEEDS, st.data())
def test_a_changed_word_is_found(audit_records: list[AuditRecord], data: st.DataObject) -> None:
    entries = chain(audit_records)
    place = data.draw(st.integers(0, len(entries) - 1))
    field = data.draw(FIELDS)
    it = entries[place]
    forged = replace(it.audit_record, **{field: getattr(it.audit_record, field) + "x"})
    assert (
        first_broken_entry([*entries[:place], replace(it, audit_record=forged), *entries[place + 1 :]])
        == it.n
    )
    late = replace(it.audit_record, at=it.audit_record.at + timedelta(microseconds=1))
    assert (
        first_broken_entry([*entries[:place], replace(it, audit_record=late), *entries[place + 1 :]]) == it.n
    )


@given(DEEDS, st.data())
def test_an_entry_that_was_taken_out_is_missed_unless_it_was_the_last(
    audit_records: list[AuditRecord], data: st.DataObject
) -> None:
    entries = chain(audit_records)
    place = data.draw(st.integers(0, len(entries) - 1))
    left = entries[:place] + entries[place + 1 :]
    assert first_broken_entry(left) == (None if place == len(entries) - 1 else place + 1)


@given(DEEDS)
def test_a_forger_would_have_to_write_everything_anew(audit_records: list[AuditRecord]) -> None:
    entries = chain([*audit_records, audit_records[0]])
    forged = chain([replace(audit_records[0], actor=audit_records[0].actor + "x")])[0]
    assert first_broken_entry([forged, *entries[1:]]) == 2


def test_fields_cannot_flow_into_each_other() -> None:
    one = AuditRecord(START, "a", "bc", "t")
    other = AuditRecord(START, "ab", "c", "t")
    assert chain([one])[0].hash != chain([other])[0].hash


def test_the_same_moment_in_another_zone_is_the_same_entry() -> None:
    there = START.astimezone(timezone(timedelta(hours=8)))
    assert (
        chain([AuditRecord(START, "a", "b", "c")])[0].hash
        == chain([AuditRecord(there, "a", "b", "c")])[0].hash
    )


@given(DEEDS)
def test_a_hash_is_over_the_compact_json_of_what_an_entry_says(audit_records: list[AuditRecord]) -> None:
    """Logs of earlier versions were hashed like this, and must verify for ever."""
    last_hash = NO_HASH
    for entry in chain(audit_records):
        it = entry.audit_record
        moment = it.at.astimezone(UTC).isoformat(timespec="microseconds")
        words = [it.actor, it.action, it.target, it.before, it.after, it.request_id]
        text = json.dumps([last_hash, entry.n, moment, *words], separators=(",", ":"))
        assert entry.hash == hashlib.sha256(text.encode()).hexdigest()
        last_hash = entry.hash
