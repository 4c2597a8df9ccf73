"""What lists of the cloud prove about a machine, and after how long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from gpuherd.domain.clock_reading import ClockReading
from gpuherd.domain.cloud.machine import Listing, Machine, Phase
from gpuherd.domain.instance.rent_attempt import machine_tag


class Witness(StrEnum):
    """Whether a list showed a machine of ours that surely exists."""

    SEEN = "seen"
    # We own none that is old enough, so nothing vouches for the list.
    NONE = "none"
    # We own some and the list shows not one of them: the list lies.
    MISSING = "missing"


@dataclass(frozen=True)
class ListRecord:
    """One walk over the cloud's pages, as evidence."""

    started_at: datetime
    finished_at: datetime
    complete: bool
    witness: Witness
    machines: int = 0
    # In which order they were written down, whatever the clocks said; 0 before it is.
    id: int = field(default=0, compare=False)
    # What the clocks showed when it was finished; None of lists that an older version made.
    reading: ClockReading | None = field(default=None, compare=False)

    @property
    def believable(self) -> bool:
        # guard: a list without any witness is not believed
        # guard: an incomplete list proves no absence
        return self.complete and self.witness is not Witness.MISSING

    def age(self, now: ClockReading) -> timedelta | None:
        """Return how old what it has shown is, at most: since its begin. None where nobody can say.

        Those are lists that an older version has made, or in the middle of which the clock was set back.
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
    # Since when believable lists have not shown it, and how many of them; None while it is listed.
    missing_since: datetime | None = None
    missing_lists: int = 0


@dataclass(frozen=True)
class SettlingPolicy:
    """How long we wait before we believe. Everything scales with the settling time of a create."""

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
        """How long after a create call a machine may still be made by it; later it is another's."""
        return self.settle * 20

    @property
    def collection_cycle(self) -> timedelta:
        """The span within which no more than a few machines are removed by themselves."""
        return self.settle / 3


# guard: three clean lists
CLEAN_LISTS_NEEDED = 3


def judge_witness(candidates: Iterable[str], listed: Iterable[str]) -> Witness:
    """Tell what a list is worth, given the machines that it must show if it is honest."""
    must_show = set(candidates)
    if not must_show:
        return Witness.NONE
    return Witness.SEEN if must_show.intersection(listed) else Witness.MISSING


def is_proven_not_created(
    sent_at: datetime, lists: Sequence[ListRecord], now: datetime, settling: SettlingPolicy
) -> bool:
    """Return True if a create of unknown outcome may be given up, from the lists made since (oldest first).

    It needs the settling time and three clean lists in a row, some distance apart, all with the same worth:
    lists without a witness say less, so they need five times as long, and the count starts anew when a
    witness appears.
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
    # The wait is measured to the last list, not to now: only a look that late proves anything.
    return _waited(sent_at, clean[-1].started_at, lists, settling) >= needed and now >= clean[-1].finished_at


def _waited(
    sent_at: datetime, until: datetime, lists: Sequence[ListRecord], settling: SettlingPolicy
) -> timedelta:
    """Return how long we have watched since the call; a gap between lists counts as their spacing at most.

    The stamps are of the wall clock, and that may jump ahead by an hour; it must not make us believe sooner.
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
    """Return True if a machine that we know by its id is proven to be gone.

    One that was listed must be missing from two believable lists some time apart. One that was never listed
    can only be missed after its removal was asked for (`asked_at`, and the lists made since).
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
    """Return what a list changes in what we know: new machines, changed ones, and those that it misses."""
    now = record.finished_at
    changed: list[ObservedMachine] = []
    listed = set()
    for machine in listing.machines:
        listed.add(machine.cloud_id)
        before = known.get(machine.cloud_id)
        if before is None:
            changed.append(ObservedMachine(machine, first_seen_at=now, changed_at=now))
        elif before.machine != machine or before.missing_since is not None:
            # The cloud may use an id again; then nobody has seen this machine before.
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
        # Seen after this list began: the list is simply older than our knowledge.
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


# A list that is made seldom may be that much older.
UNBELIEVED_INTERVALS = 3


def why_unbelieved(
    last: ListRecord | None, believed_at: datetime | None, since: datetime, now: datetime, poll: timedelta
) -> str | None:
    """Say why there was no believable list for too long, `since` the process began; None: there was one."""
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
