"""I16: nothing ends before its time, and what has reached its end is asked to end within seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpuherd.domain.instance.instance import TERMINAL_STATUSES, Goal, Instance, Status
from gpuherd.domain.instance.instance_event import CauseCode
from gpuherd.simulator.faults import FaultKind
from gpuherd.simulator.simulated_machine import BILLED_STATUSES
from proof.chaos.checks.abilities import Abilities
from proof.chaos.checks.evidence import Evidence, Violation
from proof.chaos.ends.evidence import Promise

# What is due is asked for within this.
WITHIN_S = 10.0
# A beat that comes this soon after another is not written down.
BEAT_KEPT_S = 1.0
EPSILON_S = 0.01
ASKING = frozenset({"stop_machine", "delete_machine", "get_machine"})
# By these a machine may seem to boot or to move, and such a one cannot be stopped.
HIDING_FAULTS = (FaultKind.STATUS_FLAP, FaultKind.UNKNOWN_STATUS)


@dataclass(frozen=True)
class Ended:
    """An end that was written down."""

    at_s: float
    instance_id: str
    cause: CauseCode


def ends_of(evidence: Evidence, *causes: CauseCode) -> list[Ended]:
    """Return the ends for these causes, in their order."""
    found = [
        Ended(evidence.ends.event_s[key], event.instance_id, event.cause.code)
        for key, event in evidence.tables.events.items()
        if event.cause is not None and event.cause.code in causes and key in evidence.ends.event_s
    ]
    return sorted(found, key=lambda it: (it.at_s, it.instance_id))


def check_ends_in_time(evidence: Evidence) -> Iterator[Violation]:
    """I16: leases, silence, and the time after which what is stopped is deleted."""
    if not evidence.ends.versions:
        return
    can = Abilities(evidence)
    yield from _check_leases(evidence, can)
    yield from _check_answers(evidence)
    yield from _check_silence(evidence, can)
    yield from _check_stopped(evidence, can)
    yield from _check_asked(evidence, can)
    yield from _check_rest(evidence)


def _check_leases(evidence: Evidence, can: Abilities) -> Iterator[Violation]:
    ends = evidence.ends
    for ended in ends_of(evidence, CauseCode.LEASE_ENDED):
        known = [it for it in ends.promises[ended.instance_id] if it.made_s <= ended.at_s]
        if not known:
            yield Violation("I16 lease", f"{ended.instance_id} ended at {ended.at_s:.1f} and had no lease")
            continue
        promise = known[-1]
        early_s = promise.ends_s - ended.at_s - can.lost_ahead_s(promise.made_s, ended.at_s)
        if early_s > EPSILON_S:
            yield Violation("I16 lease", f"{ended.instance_id} ended {early_s:.2f} s before its lease did")
    for instance_id, promises in ends.promises.items():
        for n, promise in enumerate(promises):
            until_s = promises[n + 1].made_s if n + 1 < len(promises) else evidence.ended_s
            yield from _check_lease_kept(evidence, can, instance_id, promise, until_s)


def _check_lease_kept(
    evidence: Evidence, can: Abilities, instance_id: str, promise: Promise, until_s: float
) -> Iterator[Violation]:
    """A lease that was not made anew before its end has ended it soon after."""
    latest_s = can.latest(promise.ends_s + can.set_back_s(promise.made_s, until_s), WITHIN_S)
    before = evidence.ends.version_at(instance_id, promise.ends_s)
    if latest_s >= until_s or before is None or not _costs(before):
        return
    after = [it for it in evidence.ends.versions[instance_id] if promise.made_s <= it.at_s <= latest_s]
    if not any(not _costs(it.instance) or it.instance.lease_term is None for it in after):
        late_s = latest_s - promise.ends_s
        yield Violation("I16 lease", f"{instance_id} goes on {late_s:.1f} s after the end of its lease")


def _costs(it: Instance) -> bool:
    """Tell whether an instance is up or on its way, and nobody has asked for its end yet."""
    return it.goal is Goal.RUNNING and it.status not in (*TERMINAL_STATUSES, Status.EXITED)


def _check_answers(evidence: Evidence) -> Iterator[Violation]:
    """Of an extension and an end that meet one wins: who is told that it has ended finds it ended."""
    for answer in evidence.ends.answers:
        if answer.refused != "LEASE_ENDED":
            continue
        it = evidence.ends.version_at(answer.instance_id, answer.at_s + EPSILON_S)
        is_over = it is not None and (
            it.goal is Goal.DELETED
            or it.status in (*TERMINAL_STATUSES, Status.EXITED)
            or (it.lease_term is not None and it.lease_term.ended)
        )
        if not is_over:
            yield Violation(
                "I16 lease", f"{answer.instance_id} was not extended, and its lease has not ended"
            )


def _check_silence(evidence: Evidence, can: Abilities) -> Iterator[Violation]:
    ends = evidence.ends
    for ended in ends_of(evidence, CauseCode.SILENCE_ENDED):
        it = ends.version_at(ended.instance_id, ended.at_s)
        assert it is not None and it.terms.silence is not None
        heard_s = _heard(evidence, can, ended.instance_id, ended.at_s)
        early_s = heard_s + it.terms.silence.silence_s - ended.at_s - BEAT_KEPT_S
        if early_s > EPSILON_S:
            words = f"{ended.instance_id} ended {early_s:.1f} s before it was silent for long enough"
            yield Violation("I16 silence", words)
    for instance_id, versions in ends.versions.items():
        silence = versions[-1].instance.terms.silence
        if silence is None:
            continue
        for n, version in enumerate(versions):
            until_s = versions[n + 1].at_s if n + 1 < len(versions) else evidence.ended_s
            if not version.instance.usable or not _costs(version.instance):
                continue
            # Nothing was written until then, so nobody has said anything that counts.
            heard_s = max(_heard(evidence, can, instance_id, until_s), version.at_s)
            latest_s = can.latest(heard_s + silence.silence_s + can.set_back_s(0.0, until_s), WITHIN_S)
            if until_s > latest_s + EPSILON_S:
                words = f"{instance_id} goes on {until_s - heard_s:.0f} s after the last word of its user"
                yield Violation("I16 silence", words)


def _heard(evidence: Evidence, can: Abilities, instance_id: str, at_s: float) -> float:
    """Return when its user was last heard, or could first have been: since it is usable and we are up."""
    beats = [beat_s for beat_s in evidence.ends.beats_s[instance_id] if beat_s < at_s]
    usable_s = at_s
    for version in reversed(evidence.ends.versions[instance_id]):
        if version.at_s >= at_s:
            continue
        if not version.instance.usable:
            break
        usable_s = version.at_s
    return max(*beats[-1:], usable_s, can.life_begin(at_s))


def _check_stopped(evidence: Evidence, can: Abilities) -> Iterator[Violation]:
    for ended in ends_of(evidence, CauseCode.STOPPED_TOO_LONG):
        versions = [it for it in evidence.ends.versions[ended.instance_id] if it.at_s < ended.at_s]
        after_s = versions[-1].instance.terms.delete_stopped_s
        # A start that was refused has changed nothing: it was stopped all the time.
        stopped_at = versions[-1].instance.stopped_at
        stopped_s = min(it.at_s for it in versions if it.instance.stopped_at == stopped_at)
        assert after_s is not None
        early_s = stopped_s + after_s - ended.at_s - can.forgotten_ahead_s(stopped_s, ended.at_s)
        if early_s > EPSILON_S:
            words = f"{ended.instance_id} was deleted {early_s:.1f} s before it was stopped for long enough"
            yield Violation("I16 stopped", words)


def _check_asked(evidence: Evidence, can: Abilities) -> Iterator[Violation]:
    """What is to end is asked of the cloud at once, if it can be: a call that fails was made all the same."""
    if any(evidence.world.faults.strikes[it.value] for it in HIDING_FAULTS):
        return
    causes = (
        CauseCode.LEASE_ENDED,
        CauseCode.SILENCE_ENDED,
        CauseCode.IDLE_ENDED,
        CauseCode.BUDGET_EXHAUSTED,
    )
    for ended in ends_of(evidence, *causes):
        it = evidence.ends.version_at(ended.instance_id, ended.at_s)
        machine = None if it is None or it.cloud_id is None else evidence.world.machines.get(it.cloud_id)
        if it is None or machine is None or it.status not in (Status.RUNNING, Status.READY):
            continue
        latest_s = can.latest(ended.at_s, WITHIN_S)
        runs = all(machine.status(evidence.origin_s + at_s) == "running" for at_s in (ended.at_s, latest_s))
        asked = any(
            call.cloud_id == it.cloud_id
            and call.method in ASKING
            and ended.at_s - EPSILON_S <= call.begin_s <= latest_s
            for call in evidence.ends.calls
        )
        if runs and not asked and latest_s < evidence.ended_s:
            yield Violation("I16 asked", f"{ended.instance_id} was to end ({ended.cause}), and nobody asked")


def _check_rest(evidence: Evidence) -> Iterator[Violation]:
    """Once all is quiet, nothing runs whose time is over."""
    if not evidence.quiet:
        return
    now = evidence.world.now()
    for row in evidence.tables.instances.values():
        it = row.instance
        machine = evidence.world.machines.get(it.cloud_id or "")
        if machine is None or it.goal is Goal.RUNNING or it.status is Status.FAILED:
            continue
        if machine.is_alive(now) and machine.status(now) in BILLED_STATUSES:
            yield Violation("I16 rest", f"{it.id} has ended ({it.status}), and its machine runs")
