"""What lists of the cloud prove about a machine, and after what time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from gpuherd.domain.clock_reading import ClockReading
from gpuherd.domain.cloud.machine import Listing, Machine, Phase
from gpuherd.domain.instance.rent_attempt import machine_tag


class Witness(StrEnum):
    """Whether a list showed a machine of ours that certainly exists."""

    SEEN = "seen"
    # We have no machine that is old enough, so nothing confirms the list.
    NONE = "none"
    # We have machines, and the list shows none of them: the list is wrong.
    MISSING = "missing"


@dataclass(frozen=True)
class ListRecord:
    """One walk over the cloud's pages, as evidence."""

    started_at: datetime
    finished_at: datetime
    complete: bool
    witness: Witness
    machines: int = 0
    # The order in which lists were stored, independent of clocks; 0 until it is stored.
    id: int = field(default=0, compare=False)
    # The clock readings at its end; None in lists of older versions.
    reading: ClockReading | None = field(default=None, compare=False)

    @property
    def believable(self) -> bool:
        # guard: a list without any witness is not believed
        # guard: an incomplete list proves no absence
        return self.complete and self.witness is not Witness.MISSING

    def age(self, now: ClockReading) -> timedelta | None:
        """Return the maximum age of what the list showed, counted from its start; None if unknown.

        It is unknown for lists of older versions, and if the clock was set during the list.
        """
        took = self.finished_at - self.started_at
        if self.reading is None or took < timedelta(0):
            return None
        # guard: a list that took long is as old as its begin
        return took + self.reading.longest_until(now)


@dataclass(frozen=True)
class ObservedMachine:
    """What the lists say about one machine."""

    machine: Machine
    first_seen_at: datetime
    changed_at: datetime
    # Since when credible lists have not shown it, and how many of them; None while it is listed.
    missing_since: datetime | None = None
    missing_lists: int = 0


@dataclass(frozen=True)
class SettlingPolicy:
    """How long gpuherd waits before it trusts an absence.

    All times scale with the settling time of a create.
    """

    settle: timedelta = timedelta(seconds=180)

    @property
    def settle_without_witness(self) -> timedelta:
        # guard: settling time without a witness
        return self.settle * 5

    @property
    def witness_age(self) -> timedelta:
        return min(timedelta(seconds=300), self.settle)

    @property
    def list_spacing(self) -> timedelta:
        return self.settle / 9

    @property
    def absence_spacing(self) -> timedelta:
        return self.settle / 18

    @property
    def second_observation(self) -> timedelta:
        """How long after the first sighting of a surplus machine the second one counts."""
        return self.settle / 6

    @property
    def takes_effect_within(self) -> timedelta:
        """How long after a create call a machine can be its result."""
        return self.settle * 20

    @property
    def collection_cycle(self) -> timedelta:
        """The period in which the collector removes only a few machines."""
        return self.settle / 3


# guard: three clean lists
CLEAN_LISTS_NEEDED = 3


def judge_witness(candidates: Iterable[str], listed: Iterable[str]) -> Witness:
    """Judge a list by the machines that it must show if it is correct."""
    must_show = set(candidates)
    if not must_show:
        return Witness.NONE
    return Witness.SEEN if must_show.intersection(listed) else Witness.MISSING


def is_proven_not_created(
    sent_at: datetime, lists: Sequence[ListRecord], now: datetime, settling: SettlingPolicy
) -> bool:
    """Return True if a create of unknown outcome certainly made no machine. `lists` are those since the call,
    oldest first.

    This takes the settling time and three clean lists in a row, some time apart, of the same worth. Lists
    without a witness prove less: they need five times as long. The count restarts when a witness appears.
    """
    clean: list[ListRecord] = []
    for record in lists:
        if record.started_at <= sent_at:
            continue
        if not record.believable:
            clean.clear()
            continue
        # guard: the count begins anew when a witness appears
        if clean and clean[-1].witness is not record.witness:
            clean.clear()
        if not clean or record.started_at - clean[-1].started_at >= settling.list_spacing:
            clean.append(record)
    if len(clean) < CLEAN_LISTS_NEEDED:
        return False
    witnessed = clean[-1].witness is Witness.SEEN
    # guard: settling time
    needed = settling.settle if witnessed else settling.settle_without_witness
    # Measure the wait up to the last list, not to now: only a list that late proves anything.
    return _waited(sent_at, clean[-1].started_at, lists, settling) >= needed and now >= clean[-1].finished_at


def _waited(
    sent_at: datetime, until: datetime, lists: Sequence[ListRecord], settling: SettlingPolicy
) -> timedelta:
    """Return how long we have watched since the call. A gap between lists counts as one interval at most.

    The stamps come from the wall clock. If it jumps ahead by an hour, gpuherd must not decide earlier.
    """
    waited = timedelta(0)
    before = sent_at
    for record in lists:
        if before < record.started_at <= until:
            # guard: a clock that jumps is not time that was watched
            waited += min(record.started_at - before, settling.list_spacing)
            before = record.started_at
    return waited


def is_proven_absent(
    sighting: ObservedMachine | None,
    asked_at: datetime | None,
    lists: Sequence[ListRecord],
    settling: SettlingPolicy,
) -> bool:
    """Return True if a machine with a known id is proven to be gone.

    A machine that was listed must be missing from two credible lists some time apart. A machine that was
    never listed is missing only after its removal was requested (at `asked_at`); `lists` are those since
    then.
    """
    if sighting is not None:
        if sighting.machine.phase is Phase.ABSENT:
            return True
        missing = sighting.missing_since
        # guard: absence takes two lists
        return (
            missing is not None
            and sighting.missing_lists >= 2
            and sighting.changed_at - missing >= settling.absence_spacing
        )
    if asked_at is None:
        return False
    looks = [it.started_at for it in lists if it.believable and it.started_at > asked_at]
    return len(looks) >= 2 and looks[-1] - looks[0] >= settling.absence_spacing


def diff_listing(
    known: Mapping[str, ObservedMachine], listing: Listing, record: ListRecord, settling: SettlingPolicy
) -> list[ObservedMachine]:
    """Return what a list changes: new machines, changed machines, and machines that it lacks."""
    now = record.finished_at
    changed: list[ObservedMachine] = []
    listed = set()
    for machine in listing.machines:
        listed.add(machine.cloud_id)
        before = known.get(machine.cloud_id)
        if before is None:
            changed.append(ObservedMachine(machine, first_seen_at=now, changed_at=now))
        elif before.machine != machine or before.missing_since is not None:
            # The cloud may reuse an id; then this is a machine that no list has shown before.
            is_other = before.missing_since is not None and machine_tag(before.machine) != machine_tag(
                machine
            )
            first_seen_at = now if is_other else before.first_seen_at
            changed.append(ObservedMachine(machine, first_seen_at, changed_at=now))
    if record.believable:
        changed.extend(
            _missed(before, record)
            for cloud_id, before in known.items()
            if cloud_id not in listed and _counts_as_missing(before, record, settling)
        )
    return changed


def _counts_as_missing(before: ObservedMachine, record: ListRecord, settling: SettlingPolicy) -> bool:
    if before.missing_since is None:
        # The machine was seen after this list began, so the list is older than our record.
        return before.changed_at < record.started_at
    if before.missing_lists >= 2:
        return False
    return record.finished_at - before.missing_since >= settling.absence_spacing


def _missed(before: ObservedMachine, record: ListRecord) -> ObservedMachine:
    return replace(
        before,
        changed_at=record.finished_at,
        missing_since=before.missing_since or record.finished_at,
        missing_lists=before.missing_lists + 1,
    )


UNBELIEVED_MAX = timedelta(minutes=5)


# If lists are rare, they may be this many intervals old.
UNBELIEVED_INTERVALS = 3


def why_unbelieved(
    last: ListRecord | None, believed_at: datetime | None, since: datetime, now: datetime, poll: timedelta
) -> str | None:
    """Return why there was no credible list for too long; None if there was one.

    `since` is the start of the process.
    """
    begun = since if believed_at is None else max(believed_at, since)
    if now - begun <= max(UNBELIEVED_MAX, poll * UNBELIEVED_INTERVALS):
        return None
    if last is None or last.finished_at < begun:
        return "no list was made"
    if not last.complete:
        return "the list is never complete: its pages do not fit the total that the cloud tells"
    if last.witness is Witness.MISSING:
        return "the list shows none of our machines, or not the account that they are on"
    return "no list was made"
