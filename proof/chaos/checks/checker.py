"""The invariants, checked against the cloud's truth and not against our own word alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.instance_event import goes_to_instance_webhook
from gpuherd.domain.instance.instance_state import VANISHED
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.domain.webhooks.webhook_delivery import DeliveryState
from proof.chaos.checks.cost_checker import check_costs
from proof.chaos.checks.ends_checker import check_ends_in_time
from proof.chaos.checks.evidence import Evidence, Violation
from proof.chaos.checks.idle_checker import check_idleness
from proof.chaos.checks.lineage_checker import check_lineages, is_heir
from proof.chaos.checks.money_checker import (
    check_account,
    check_foreign_machines,
    check_known,
    check_ledger,
    check_price_caps,
    check_single,
    check_wanted,
    machine_lifetimes,
    owner_by_tag,
)
from proof.chaos.checks.spending_checker import check_spending
from proof.chaos.cloud.recording_cloud import BREAKER_RECOVERY_S, BREAKER_THRESHOLD
from proof.chaos.process import Pace

UNKNOWN_MAX = 3
READ_TRIES = 3

# To another host, where it has other ports: then all that follows `running` comes again.
MOVED = ("migrating", "running")
# Never back: what has ended stays ended, and what was usable does not become new again.
ALLOWED_TRANSITIONS: dict[str, frozenset[str]] = {
    "": frozenset({"creating"}),
    "creating": frozenset({"starting", "running", "failed", "deleting"}),
    "starting": frozenset({"running", "exited", "failed", "stopping", "deleting"}),
    "running": frozenset({"health_checking", "exited", "failed", "stopping", "deleting", *MOVED}),
    "health_checking": frozenset({"ready", "exited", "failed", "stopping", "deleting", *MOVED}),
    "ready": frozenset({"exited", "failed", "stopping", "deleting", *MOVED}),
    "migrating": frozenset({"running", "exited", "failed", "stopping", "deleting"}),
    "stopping": frozenset({"exited", "failed", "deleting"}),
    "exited": frozenset({"starting", "running", "failed", "deleting"}),
    # Only the machine of a start that failed is kept, and can be stopped.
    "failed": frozenset({"stopping", "deleting"}),
    "deleting": frozenset({"deleted"}),
    "deleted": frozenset(),
}
# Only of a machine that was thought lost can anything come after the failure.
FOUND_AGAIN = frozenset({"running", "ready", "exited"})


def check(evidence: Evidence, *, abandoned_may_overlap: bool = False) -> list[Violation]:
    """Return every promise that was broken."""
    lifetimes = list(machine_lifetimes(evidence, owner_by_tag))
    return [
        *check_quiescence(evidence),
        *check_known(evidence, lifetimes),
        *check_single(evidence, lifetimes, abandoned_may_overlap),
        *check_ends(evidence),
        *check_order(evidence),
        *check_webhooks(evidence),
        *check_claims(evidence),
        *check_calls(evidence),
        *check_foreign_machines(evidence),
        *check_wanted(evidence),
        *check_account(evidence),
        *check_budget(evidence),
        *check_ledger(evidence, lifetimes),
        *check_price_caps(evidence),
        *check_costs(evidence),
        *check_ends_in_time(evidence),
        *check_idleness(evidence),
        *check_spending(evidence, lifetimes),
        *check_lineages(evidence, lifetimes),
    ]


def check_quiescence(evidence: Evidence) -> Iterator[Violation]:
    """I3: once the faults are over, everything comes to rest, and nothing broke on the way."""
    if not evidence.quiet:
        moving = [
            f"{row.instance.id} {row.instance.status} ({row.instance.reason})"
            for row in evidence.tables.instances.values()
            if not row.instance.settled
        ]
        waiting = [it.type for it in evidence.tables.deliveries.values() if it.state is DeliveryState.PENDING]
        yield Violation("I3 rest", f"still busy long after the storm: {moving} {waiting}")
    for error in evidence.unhandled:
        yield Violation("I3 rest", f"nobody handled {error!r}")
    for job in evidence.tables.jobs.values():
        # An error of ours has a code before the colon; a bare name is a mistake in the program.
        if job.error and ":" not in job.error:
            yield Violation("I3 rest", f"a job of {job.new.kind} stumbled over {job.error}")


def check_ends(evidence: Evidence) -> Iterator[Violation]:
    """I3 and I4: what was accepted has come to the end that was asked for, or says why not."""
    deleted = {it.instance_id for it in evidence.accepted if it.kind == "delete"}
    for accepted in evidence.accepted:
        if accepted.instance_id not in evidence.tables.instances:
            yield Violation("I3 kept", f"{accepted.instance_id} was accepted and is forgotten")
    if not evidence.quiet:
        return
    for row in evidence.tables.instances.values():
        it = row.instance
        if it.id in deleted and it.status is not Status.DELETED:
            yield Violation("I4 deleted", f"{it.id} was to be deleted and is {it.status}")
        if not _has_reached_goal(it):
            yield Violation("I3 end", f"{it.id} rests as {it.status}, and its goal is {it.goal}")
        if it.status is Status.FAILED and it.last_error is None:
            yield Violation("I3 reason", f"{it.id} failed and does not say why")


def _has_reached_goal(it: Instance) -> bool:
    match it.goal:
        case Goal.DELETED:
            return it.status is Status.DELETED
        case Goal.STOPPED:
            return it.status in (Status.EXITED, Status.FAILED)
        case _:
            return it.usable or it.status in (Status.EXITED, Status.FAILED)


def check_order(evidence: Evidence) -> Iterator[Violation]:
    """I5: the event log counts without a gap, and no status goes back."""
    for instance_id, row in evidence.tables.instances.items():
        history = sorted(
            (it for it in evidence.tables.events.values() if it.instance_id == instance_id),
            key=lambda it: it.sequence,
        )
        if [it.sequence for it in history] != list(range(1, row.instance.sequence + 1)):
            yield Violation("I5 order", f"{instance_id} has a gap in its events")
        status, lost = "", False
        for event in history:
            if not event.after:
                # One that had failed and was kept is lost without another status.
                lost = lost or event.details.get("code") == VANISHED
                continue
            allowed = ALLOWED_TRANSITIONS[status] | (FOUND_AGAIN if lost else frozenset())
            if event.before != status or event.after not in allowed:
                yield Violation("I5 order", f"{instance_id}: {status} became {event.after} ({event.type})")
            status, lost = event.after, event.details.get("code") == VANISHED
        if status != row.instance.status.value:
            yield Violation("I5 order", f"{instance_id} is {row.instance.status}, its events say {status}")


def check_webhooks(evidence: Evidence) -> Iterator[Violation]:
    """I6: one event, one id, the same bytes at every try; nothing told that was not committed first."""
    bodies: dict[str, set[bytes]] = defaultdict(set)
    for webhook in evidence.received_webhooks:
        bodies[webhook.event_id].add(webhook.body)
        if not webhook.committed:
            yield Violation("I6 webhooks", f"{webhook.event_id} was told before it was true")
    for event_id, versions in bodies.items():
        if len(versions) > 1:
            yield Violation("I6 webhooks", f"{event_id} came with {len(versions)} different bodies")
    heard = {webhook.event_id for webhook in evidence.received_webhooks if webhook.accepted}
    told = defaultdict(list)
    for delivery in evidence.tables.deliveries.values():
        told[(delivery.instance_id, delivery.sequence)].append(delivery)
        if evidence.quiet and (delivery.state is not DeliveryState.DELIVERED or delivery.id not in heard):
            yield Violation("I6 webhooks", f"{delivery.type} is {delivery.state} and was not heard")
    for key, event in evidence.tables.events.items():
        row = evidence.tables.instances.get(event.instance_id)
        if row is not None and goes_to_instance_webhook(event, row.instance) and len(told[key]) != 1:
            yield Violation("I6 webhooks", f"{event.type} has {len(told[key])} deliveries")


def check_claims(evidence: Evidence) -> Iterator[Violation]:
    """I7: one Idempotency-Key, one instance."""
    owners: dict[str, set[str]] = defaultdict(set)
    for accepted in evidence.accepted:
        if accepted.key:
            owners[accepted.key].add(accepted.instance_id)
    for key, instances in owners.items():
        if len(instances) > 1:
            yield Violation("I7 claims", f"{key} stands for {sorted(instances)}")
    asked_for = {it.instance_id for it in evidence.accepted if it.kind == "create"}
    claimed = {row.instance_id for row in evidence.tables.claims.values()}
    heirs = {it for it, row in evidence.tables.instances.items() if is_heir(row.instance)}
    if stray := set(evidence.tables.instances) - claimed - asked_for - heirs:
        yield Violation("I7 claims", f"nobody asked for {sorted(stray)}")


def check_calls(evidence: Evidence) -> Iterator[Violation]:
    """I8: no create call without its committed intent, none twice, and no two in doubt at once."""
    sent = set()
    for create_call in evidence.create_calls:
        if not create_call.intended or create_call.open_attempts != 1:
            yield Violation("I8 intent", f"{create_call.tag} was sent without an open intent of its own")
        if create_call.tag in sent:
            yield Violation("I8 intent", f"{create_call.tag} was sent twice")
        sent.add(create_call.tag)
    given_up: dict[str, int] = defaultdict(int)
    for attempt in evidence.tables.attempts.values():
        given_up[attempt.instance_id] += attempt.state is AttemptState.ABANDONED
    for instance_id, count in given_up.items():
        if count > UNKNOWN_MAX:
            yield Violation("I8 intent", f"{instance_id} has {count} calls of unknown outcome")


def check_budget(evidence: Evidence) -> Iterator[Violation]:
    """I11: an outage is met with few calls, however long it lasts and however much waits."""
    for outage in evidence.outages:
        lifetimes = 1 + sum(it.begin_s < outage.end_s and outage.begin_s < it.end_s for it in evidence.down)
        opening = BREAKER_THRESHOLD + 2 * Pace().slots
        probes = 2 * (outage.seconds / BREAKER_RECOVERY_S + 1)
        most = READ_TRIES * (lifetimes * opening + probes)
        if outage.calls > most:
            yield Violation("I11 budget", f"{outage.calls} calls in an outage of {outage.seconds:.0f} s")
