"""Orphans: machines that cost money and that no instance of ours wants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from gpuherd.domain.blast_limit import blast_limit
from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.domain.errors import Conflict
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.instance_state import (
    has_given_up_machine,
    is_machine_of_other_call,
    wants_machine,
    was_machine_proven_gone,
)
from gpuherd.domain.instance.next_step import CLOCKS_APART_MAX
from gpuherd.domain.instance.rent_attempt import (
    ATTEMPTS_KEPT,
    Attempt,
    AttemptState,
    owner_tag,
    parse_tag,
)

# The actor that removes surplus machines automatically. Orders of people have another name.
COLLECTOR = "collector"


# Wait before the first repeat of a request. It doubles each time, up to this maximum.
REQUEST_BACKOFF_FIRST = timedelta(seconds=30)


REQUEST_BACKOFF_CAP = timedelta(minutes=10)
HOUR = timedelta(hours=1)


# The cloud is removing it; nothing is left to request.
LEAVING_PHASES = frozenset({Phase.REMOVING, Phase.ABSENT})


# Its GPUs are not billed; its disk is.
UNBILLED_PHASES = LEAVING_PHASES | {Phase.STOPPED, Phase.FROZEN, Phase.CREATING}


class OrphanVerdict(StrEnum):
    """Whose machine it is."""

    # Ours, and our records prove that it is superfluous.
    SURPLUS = "surplus"
    # Ours by its tag, but no record proves that we made it: the database is older than the machine, or it is
    # a copy.
    UNRECORDED = "unrecorded"
    # Another installation's, or of unknown origin.
    FOREIGN = "foreign"


class OrphanOrder(StrEnum):
    """What the user or the collector wants to do with it."""

    STOP = "stop"
    DELETE = "delete"


class OrphanEnding(StrEnum):
    """Why a machine is no longer an orphan."""

    GONE = "gone"
    ADOPTED = "adopted"
    # An instance of ours has it.
    CLAIMED = "claimed"


@dataclass(frozen=True)
class MachineRecords:
    """Our records about one machine."""

    # The instance that has it, and the create call of that instance that made a machine with this id.
    bound: Instance | None = None
    bound_attempt: Attempt | None = None
    # The create call whose tag it carries.
    attempt: Attempt | None = None
    # The instance that its tag names.
    named: Instance | None = None


@dataclass(frozen=True)
class OrphanFinding:
    """The verdict on one machine, with a sentence for people."""

    verdict: OrphanVerdict
    reason: str
    # The instance named by the tag or by our records.
    instance_id: str | None = None


@dataclass(frozen=True)
class Orphan:
    """One entry of the ledger of orphans."""

    machine: Machine
    finding: OrphanFinding
    first_seen_at: datetime
    # Since when the verdict has been the same.
    judged_at: datetime
    # The second sighting, long enough after the first.
    confirmed_at: datetime | None = None
    # Hourly price of its GPUs while it runs, if known.
    gpus_usd: Decimal | None = None
    # Hourly price of its disk.
    disk_usd: Decimal = Decimal(0)
    # When the machine last looked different in the lists.
    changed_at: datetime | None = None
    order: OrphanOrder | None = None
    ordered_at: datetime | None = None
    ordered_by: str = ""
    # When the cloud was last asked to execute the order, how often, and its error.
    asked_at: datetime | None = None
    tries: int = 0
    error: str = ""
    gone_at: datetime | None = None
    ending: OrphanEnding | None = None
    # The instance that adopted it.
    adopted_as: str | None = None
    version: int = 0

    @property
    def cloud_id(self) -> str:
        return self.machine.cloud_id

    @property
    def verdict(self) -> OrphanVerdict:
        return self.finding.verdict

    @property
    def is_open(self) -> bool:
        return self.gone_at is None

    @property
    def hourly_usd(self) -> Decimal | None:
        """Its hourly price now."""
        if self.gpus_usd is None:
            return None
        gpus_usd = Decimal(0) if self.machine.phase in UNBILLED_PHASES else self.gpus_usd
        return gpus_usd + (Decimal(0) if self.machine.phase is Phase.ABSENT else self.disk_usd)

    @property
    def since(self) -> datetime:
        """When it was created, or first seen."""
        return self.machine.created_at or self.first_seen_at

    def age(self, now: datetime) -> timedelta:
        return max(now - self.since, timedelta(0))

    def cost_so_far(self, now: datetime) -> Decimal | None:
        """Return its cost so far, as if it had run from the beginning."""
        if self.gpus_usd is None:
            return None
        until = now if self.machine.phase not in UNBILLED_PHASES else self.changed_at or now
        cost = self.gpus_usd * _hours(until - self.since) + self.disk_usd * _hours(now - self.since)
        return cost.quantize(Decimal("0.0001"))


def _hours(span: timedelta) -> Decimal:
    return Decimal(max(span, timedelta(0)) // timedelta(seconds=1)) / Decimal(HOUR.total_seconds())


def judge_machine(
    machine: Machine,
    records: MachineRecords,
    installation: str,
    first_seen_at: datetime,
    settling: SettlingPolicy,
) -> OrphanFinding | None:
    """Judge whose machine it is. None: an instance of ours has it, or is about to get it."""
    holder = records.bound
    if holder is not None and has_given_up_machine(holder):
        holder = None
    if holder is not None and not _is_of_other_instance(machine, holder):
        return None
    # guard: a machine that we had is ours by its tag too
    tag = owner_tag(machine)
    if tag is None:
        return OrphanFinding(OrphanVerdict.FOREIGN, "it carries no tag of gpuherd")
    # guard: what others own is never ours
    if tag.installation != installation:
        reason = f"it belongs to another installation of gpuherd ({tag.installation})"
        return OrphanFinding(OrphanVerdict.FOREIGN, reason)
    named = records.named.id if records.named else None
    if records.attempt is None:
        reason = "it carries our tag, but this database has no record of its create call"
        return OrphanFinding(OrphanVerdict.UNRECORDED, reason, named)
    # guard: the machine of an open call is no orphan
    if records.attempt.is_open:
        return None
    if doubt := doubt_about(machine, records.attempt, first_seen_at, settling):
        return OrphanFinding(OrphanVerdict.UNRECORDED, doubt, named)
    # guard: the collector leaves a wanted machine alone
    if records.attempt.cloud_id is None and records.named is not None and wants_machine(records.named):
        return None
    # guard: a machine under the id of a lost one is not removed by its tag alone
    if holder is not None and not _is_made_later(machine, holder, records.bound_attempt):
        reason = (
            f"it has the id of the machine that instance {holder.id} has lost, and the tag of another one"
        )
        return OrphanFinding(OrphanVerdict.UNRECORDED, reason, named)
    return OrphanFinding(OrphanVerdict.SURPLUS, _surplus_reason(records.attempt, records.named), named)


def _is_of_other_instance(machine: Machine, holder: Instance) -> bool:
    """Return True if the cloud gave the id of a lost machine to another one."""
    tag = owner_tag(machine)
    return was_machine_proven_gone(holder) and tag is not None and tag.instance_key != holder.key


def _is_made_later(machine: Machine, holder: Instance, bound: Attempt | None) -> bool:
    """Return True if a machine is certainly younger than the one that the instance lost.

    An adopted machine carries a foreign tag from the beginning, and it may have come back.
    """
    return bound is not None and is_machine_of_other_call(machine, holder, bound)


def doubt_about(
    machine: Machine, attempt: Attempt, first_seen_at: datetime, settling: SettlingPolicy
) -> str | None:
    """Return why a machine with the tag of a call may not be made by that call; None if it certainly was."""
    call = f"create call {attempt.n} of instance {attempt.instance_id}"
    # guard: an environment alone deletes nothing
    if parse_tag(machine.name) is None:
        return f"it carries the tag of {call} in its environment only, and that is copied easily"
    # guard: name and environment must agree
    if machine.env_tag and machine.env_tag != attempt.tag:
        return f"it carries the tag of {call} in its name, and another one in its environment"
    # guard: one call makes one machine
    if attempt.cloud_id not in (None, machine.cloud_id):
        return f"it carries the tag of {call}, but that one has made machine {attempt.cloud_id}"
    made_at = machine.created_at or first_seen_at
    # guard: surplus only around the time of the call
    if not attempt.sent_at - CLOCKS_APART_MAX <= made_at <= attempt.sent_at + settling.takes_effect_within:
        return (
            f"it carries the tag of {call}, which was made at {attempt.sent_at:%Y-%m-%d %H:%M:%S}, "
            f"but the machine is of {made_at:%Y-%m-%d %H:%M:%S}"
        )
    return None


def _surplus_reason(attempt: Attempt, named: Instance | None) -> str:
    if attempt.state is AttemptState.BOUND:
        if named is not None and named.cloud_id not in (None, attempt.cloud_id):
            return f"instance {attempt.instance_id} has the machine {named.cloud_id}"
        deleted = named is None or named.status is Status.DELETED
        what = "was deleted" if deleted else "has given its machine back"
        return f"instance {attempt.instance_id} {what}, but the machine is there"
    what = "given up as without effect" if attempt.state is AttemptState.ABANDONED else "refused"
    return f"create call {attempt.n} of instance {attempt.instance_id} was {what}, but made a machine"


def machine_claimed_error(cloud_id: str, instance_id: str) -> Conflict:
    """Return the error for an orphan order on a machine that one of our instances has."""
    return Conflict(
        f"machine {cloud_id} belongs to instance {instance_id}; start, stop or delete that instead",
        code="ORPHAN_CLAIMED",
        details={"instanceId": instance_id},
    )


def is_confirmed(judged_at: datetime, seen_at: datetime, settling: SettlingPolicy) -> bool:
    """Return True if the list at `seen_at` is the second sighting that counts."""
    # guard: two sightings of a surplus machine
    return seen_at - judged_at >= settling.second_observation


def brake(due: int, lately: int, instances: int) -> str | None:
    """Return why surplus machines must not be removed automatically now; None if they may.

    `due` machines would be removed now, and `lately` were removed within the last cycle. A removal of more
    than a tenth of all instances is more likely our mistake than intended.
    """
    allowed = blast_limit(instances)
    # guard: the brake
    if due + lately <= allowed:
        return None
    return (
        f"{due + lately} machines would be deleted as surplus within one cycle, {allowed} are allowed for "
        f"{instances} instances; a person must look at them first"
    )


def is_fulfilled(orphan: Orphan) -> bool:
    """Return True if the order is fulfilled."""
    return orphan.order is OrphanOrder.STOP and orphan.machine.phase in (Phase.STOPPED, Phase.FROZEN)


def is_due(orphan: Orphan, now: datetime) -> bool:
    """Return True if the cloud must be asked now to execute the order."""
    phase = orphan.machine.phase
    if orphan.order is None or phase in LEAVING_PHASES:
        return False
    if orphan.order is OrphanOrder.STOP and phase not in (Phase.RUNNING, Phase.UNKNOWN):
        # A booting or migrating machine cannot be stopped yet.
        return False
    # abs(): if the wall clock stepped back, the last request seems to lie in the future.
    return orphan.asked_at is None or abs(now - orphan.asked_at) >= _request_backoff(orphan.tries)


def _request_backoff(tries: int) -> timedelta:
    doublings = min(max(tries - 1, 0), 10)
    return min(REQUEST_BACKOFF_CAP, REQUEST_BACKOFF_FIRST * (1 << doublings))


def with_order(orphan: Orphan, order: OrphanOrder, by: str, now: datetime) -> Orphan:
    """Return the orphan with an order. The same order again changes nothing; a delete is never undone."""
    if orphan.order is order and (orphan.ordered_by == by or by == COLLECTOR):
        return orphan
    if orphan.order is OrphanOrder.DELETE and order is OrphanOrder.STOP:
        return orphan
    # A second caller with the same order does not repeat the request at once.
    fresh = orphan.order is not order
    return replace(
        orphan,
        order=order,
        ordered_at=now,
        ordered_by=by,
        asked_at=None if fresh else orphan.asked_at,
        tries=0 if fresh else orphan.tries,
        error="" if fresh else orphan.error,
    )


def without_order(orphan: Orphan) -> Orphan:
    """Return the orphan without its order."""
    return replace(orphan, order=None, ordered_at=None, ordered_by="", asked_at=None, tries=0, error="")


def is_made_by_another(
    machine: Machine, attempts: Iterable[Attempt], installation: str, since: datetime
) -> bool:
    """Return True if a machine with our id was made after `since` by none of our calls.

    `attempts` belong to the instance named by its tag, read after the list that showed the machine. Older
    machines prove nothing: an old copy may have replaced this database in the meantime.
    """
    # Only the name counts: people copy environments from our machines.
    tag = parse_tag(machine.name)
    if tag is None or tag.installation != installation:
        return False
    # guard: what an earlier life made raises no alarm
    if machine.created_at is None or machine.created_at <= since:
        return False
    known = {it.tag: it.n for it in attempts}
    # Old refused calls are forgotten, so this number may be one of ours.
    may_be_forgotten = tag.attempt <= max(known.values(), default=0) - ATTEMPTS_KEPT
    return str(tag) not in known and not may_be_forgotten
