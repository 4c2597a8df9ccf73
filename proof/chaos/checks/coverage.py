"""What a schedule really reached. A suite in which one of these never happens proves nothing about it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from gpuherd.domain.cloud.observation import Witness
from gpuherd.domain.cloud.orphan import OrphanEnding, OrphanVerdict
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.instance_state import VANISHED
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.simulator.faults import FaultKind
from proof.chaos.checks.checker import FOUND_AGAIN
from proof.chaos.checks.evidence import Evidence

# Must each be reached by the default profile; `late` must reach its own as well.
REQUIRED_COVERAGE = (
    "crashed",
    "adopted after a crash",
    "adopted after a lost answer",
    "adopted a late arrival",
    "abandoned, then sent again",
    "list rejected by a witness",
    "list with pages that do not fit",
    "breaker opened",
    "outage",
    "deleted during the create",
    "next offer after one was sold out",
    "request repeated under its key",
    "goal put aside by a later one",
    "webhook retried",
    "webhook sent again after a crash",
    "spot machine reclaimed",
    "started again",
    "clock jumped while a create was in doubt",
    "vanished or failed, and said so",
    "thought lost, and found again",
    "machine of others reported",
    "changed past us",
    "machine copied",
    "installation alarm",
    "span cut by a clock step",
    "cloud id used again",
)
# Nothing is ever sent again there.
REQUIRED_COVERAGE_STRICT = tuple(it for it in REQUIRED_COVERAGE if it != "abandoned, then sent again")
REQUIRED_COVERAGE_LATE = (
    "surplus machine collected",
    "collector braked",
    "late machine of a given-up call taken",
)
# Faults that deny machines are left out there, so nothing is thought lost by mistake.
REQUIRED_COVERAGE_ACCOUNTS = (
    *(it for it in REQUIRED_COVERAGE if it != "thought lost, and found again"),
    "account doubted",
    "loss of a herd held",
)

REQUIRED_COVERAGE_CAPACITY = (
    *REQUIRED_COVERAGE,
    "waited for capacity, and got it",
    "waited for capacity in vain",
)

REQUIRED_COVERAGE_ENDS = (
    "lease ended",
    "ended by silence",
    "ended by idleness",
    "idleness braked",
    "stopped for too long",
    "budget used up",
    "ended by a budget",
    "refused by a budget",
    "extension near the end",
    "extension refused after the end",
    "lease ended before the machine was there",
    "lease moved with the clock",
    "crashed",
    "outage",
)


REQUIRED_COVERAGE_HEIRS = (
    "heir made by a notice",
    "heir made by a loss",
    "heir made by hand",
    "handed over",
    "heir failed, and was followed by another",
    "heir ended with its predecessor",
    "heir of an heir",
    "crashed",
    "outage",
)


def note_coverage(evidence: Evidence) -> Counter[str]:
    """Return how often each of the interesting things happened."""
    seen = evidence.coverage
    tables = evidence.tables
    seen["crashed"] += evidence.crashes
    seen["outage"] += sum(it.calls > 0 for it in evidence.outages)
    found = {
        (it.instance_id, it.details["attempt"]) for it in _events(evidence, instance_event.MACHINE_FOUND)
    }
    for key in found:
        interrupted = tables.attempts[key].error_code == "INTERRUPTED"
        seen["adopted after a crash" if interrupted else "adopted after a lost answer"] += 1
    taken = sum(bool(it.details.get("late")) for it in _events(evidence, instance_event.MACHINE_FOUND))
    seen["late machine of a given-up call taken"] += taken
    late = {line.machine_id for line in evidence.world.record.lines if line.outcome == "committed late"}
    seen["adopted a late arrival"] += len(late.intersection(tables.bound))
    attempts = sorted(tables.attempts.values(), key=lambda it: (it.instance_id, it.n))
    for one, following in pairwise(attempts):
        if one.instance_id == following.instance_id:
            seen["abandoned, then sent again"] += one.state is AttemptState.ABANDONED
            seen["next offer after one was sold out"] += one.error_code == "RESOURCE_CONSTRAINTS"
    for record in tables.lists.values():
        seen["list rejected by a witness"] += record.witness is Witness.MISSING
        seen["list with pages that do not fit"] += not record.complete
    for event in _events(evidence, instance_event.DELETING):
        seen["deleted during the create"] += event.before == Status.CREATING.value
    creates = Counter(it.key for it in evidence.accepted if it.kind == "create")
    seen["request repeated under its key"] += sum(count - 1 for count in creates.values())
    states = Counter(operation.state.value for operation, _ in tables.operations.values())
    seen["goal put aside by a later one"] += states["superseded"]
    received_webhooks = Counter(it.event_id for it in evidence.received_webhooks)
    heard = Counter(it.event_id for it in evidence.received_webhooks if it.accepted)
    seen["webhook retried"] += sum(received_webhooks[it] > heard[it] for it in received_webhooks)
    seen["webhook sent again after a crash"] += sum(count > 1 for count in heard.values())
    seen["spot machine reclaimed"] += evidence.world.faults.strikes[FaultKind.RECLAIM.value]
    seen["started again"] += sum(it.kind == "start" for it in evidence.accepted)
    seen["vanished or failed, and said so"] += len(_events(evidence, instance_event.FAILED))
    seen["span cut by a clock step"] += sum(it.span.ended_by == "clock" for it in tables.spans.values())
    waited = {
        it.instance_id
        for it in _events(evidence, instance_event.WAITING)
        if it.details.get("for") == "capacity"
    }
    for it in (tables.instances[instance_id].instance for instance_id in waited):
        seen["waited for capacity, and got it"] += it.rental is not None
        seen["waited for capacity in vain"] += it.status is Status.FAILED and it.rental is None
    _note_ledger(evidence, seen)
    if evidence.ends.versions:
        _note_ends(evidence, seen)
    _note_heirs(evidence, seen)
    return seen


def _note_heirs(evidence: Evidence, seen: Counter[str]) -> None:
    for event in _events(evidence, instance_event.REPLACING):
        seen[_HEIR_NAMES[event.details["why"]]] += 1
        seen["heir of an heir"] += event.details["link"] > 2
    for row in evidence.tables.instances.values():
        chain = row.instance.chain
        if chain is not None:
            seen["handed over"] += chain.heir is not None and chain.heir.has_taken_over
            seen["heir failed, and was followed by another"] += chain.failures > 0 and chain.last_link > 2
    words = [it.reason for it in _events(evidence, instance_event.DELETING)]
    seen["heir ended with its predecessor"] += sum("predecessor is not wanted" in it for it in words)


_HEIR_NAMES = {
    "notice": "heir made by a notice",
    "lost": "heir made by a loss",
    "asked": "heir made by hand",
}


def _note_ends(evidence: Evidence, seen: Counter[str]) -> None:
    causes = Counter(it.cause.code for it in evidence.tables.events.values() if it.cause is not None)
    for code, name in _END_NAMES.items():
        seen[name] += causes[code]
    ends = evidence.ends
    seen["budget used up"] += sum(history[-1][1].exhausted for history in ends.budgets.values())
    seen["extension refused after the end"] += sum(it.refused == "LEASE_ENDED" for it in ends.answers)
    words = [it.reason for it in evidence.tables.events.values() if it.type == instance_event.LEASE_ENDED]
    seen["lease ended before the machine was there"] += sum("before it could be used" in it for it in words)
    terms = [it.instance.lease_term for its in ends.versions.values() for it in its]
    moved = {
        it.ends_at
        for it in terms
        if it is not None and abs((it.ends_at - it.set_at).total_seconds() - it.length_s) > 1
    }
    seen["lease moved with the clock"] += len(moved)


_END_NAMES = {
    instance_event.CauseCode.LEASE_ENDED: "lease ended",
    instance_event.CauseCode.SILENCE_ENDED: "ended by silence",
    instance_event.CauseCode.IDLE_ENDED: "ended by idleness",
    instance_event.CauseCode.STOPPED_TOO_LONG: "stopped for too long",
    instance_event.CauseCode.BUDGET_EXHAUSTED: "ended by a budget",
}


def _note_ledger(evidence: Evidence, seen: Counter[str]) -> None:
    for orphan in evidence.tables.orphans.values():
        surplus = orphan.verdict is OrphanVerdict.SURPLUS
        seen["surplus machine collected"] += surplus and orphan.ending is OrphanEnding.GONE
        seen["machine of others reported"] += orphan.verdict is OrphanVerdict.FOREIGN
    histories: dict[str, list[instance_event.Event]] = {}
    for event in evidence.tables.events.values():
        if event.after:
            histories.setdefault(event.instance_id, []).append(event)
    for history in histories.values():
        for one, following in pairwise(sorted(history, key=lambda it: it.sequence)):
            lost = one.details.get("code") == VANISHED
            seen["thought lost, and found again"] += lost and following.after in FOUND_AGAIN


def _events(evidence: Evidence, type_: str) -> list[instance_event.Event]:
    return [it for it in evidence.tables.events.values() if it.type == type_]
