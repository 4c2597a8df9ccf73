"""The invariants about money: whose each machine is, how many there are, and what they cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, combinations, pairwise

from gpuherd.domain.cloud.orphan import OrphanVerdict
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.domain.instance.next_step import CLOCKS_APART_MAX
from gpuherd.domain.instance.rent_attempt import AttemptState, parse_tag
from gpuherd.simulator.simulated_machine import SimulatedMachine, billed_gpu_s
from gpuherd.usecases.cloud.guard_creates import VANISHING_HELD
from proof.chaos.checks.evidence import Evidence, SeenMachine, Violation

# We count prices in billionths of a dollar.
CAP_ROUNDING = Fraction(1, 10**9)
# A removal that was refused is asked for again within this, whatever else the cloud refuses: so long the
# circuit breaker stays open at most.
ASKED_AGAIN_S_MAX = 240.0
MUTATING_CALLS = frozenset({"delete", "stop", "start", "restart", "edit", "upgrade", "migrate"})


@dataclass(frozen=True)
class MachineLifetime:
    """How long a machine existed, in the schedule's seconds, and whose it is."""

    machine: SimulatedMachine
    owner: str
    begin_s: float
    end_s: float
    # When our memory first said that it is ours, and when a list first showed it.
    bound_s: float | None
    listed_s: float | None


def owner_by_tag(machine: SimulatedMachine) -> str | None:
    """Return the instance that a machine was made for; what was asked for counts, not what is shown."""
    tag = parse_tag(machine.request.name)
    return f"inst_{tag.instance_key}" if tag else None


def machine_lifetimes(
    evidence: Evidence, owner: Callable[[SimulatedMachine], str | None]
) -> Iterator[MachineLifetime]:
    """Yield the lives of all machines that were made for somebody's request."""
    present = [
        SeenMachine(it, evidence.bound_at_s.get(it.id), evidence.listed_at_s.get(it.id))
        for it in evidence.world.machines.values()
        if it.id not in evidence.decoys
    ]
    for known in (*evidence.former, *present):
        machine, whose = known.machine, owner(known.machine)
        if whose is None:
            continue
        removed = next((turn.at for turn in machine.turns if turn.status == "toRemove"), None)
        begin_s = machine.created_at - evidence.origin_s
        end_s = evidence.ended_s if removed is None else removed - evidence.origin_s
        yield MachineLifetime(machine, whose, begin_s, end_s, known.bound_s, known.listed_s)


def check_known(evidence: Evidence, lifetimes: list[MachineLifetime]) -> Iterator[Violation]:
    """I1 and I4: every machine that exists is one that somebody has and wants."""
    now = evidence.world.now()
    for lifetime in lifetimes:
        if not lifetime.machine.is_alive(now):
            continue
        row = evidence.tables.instances.get(lifetime.owner)
        if _is_reported_by_wrong_clock(evidence, lifetime.machine.id):
            continue
        if row is None or row.instance.cloud_id != lifetime.machine.id:
            yield Violation("I1 known", f"machine {lifetime.machine.name} is alive and nobody has it")
        elif not _may_have_a_machine(row.instance):
            yield Violation("I4 given back", f"{row.instance.id} is {row.instance.status} and has a machine")


def _is_reported_by_wrong_clock(evidence: Evidence, machine_id: str) -> bool:
    """Tell whether people are told of a machine that is not collected because of when it was made.

    With a wall clock that is an hour ahead of the cloud's it seems to be older than our call. By less than
    the allowance for clocks that are apart, or for any other reason, nothing is left to people.
    """
    orphan = evidence.tables.orphans.get(machine_id)
    if orphan is None or not orphan.is_open or orphan.verdict is not OrphanVerdict.UNRECORDED:
        return False
    ahead = accumulate((seconds for _, seconds in sorted(evidence.jumps)), initial=0.0)
    is_clock_wrong = max(map(abs, ahead)) > CLOCKS_APART_MAX.total_seconds()
    return is_clock_wrong and "but the machine is of" in orphan.finding.reason


def _may_have_a_machine(it: Instance) -> bool:
    if it.status is Status.DELETED:
        return False
    never_used = it.ready_at is None and it.stopped_at is None
    return it.status is not Status.FAILED or it.on_failure is OnFailure.KEEP or not never_used


def check_single(
    evidence: Evidence, lifetimes: list[MachineLifetime], abandoned_may_overlap: bool
) -> Iterator[Violation]:
    """I2: never two machines at once for one request, not even for a moment."""
    for one, other in overlaps(lifetimes):
        if abandoned_may_overlap and (_is_abandoned(evidence, one) or _is_abandoned(evidence, other)):
            continue
        yield Violation("I2 single", f"{one.machine.name} and {other.machine.name} existed at once")


def overlaps(lifetimes: list[MachineLifetime]) -> Iterator[tuple[MachineLifetime, MachineLifetime]]:
    """Yield all pairs of machines of one owner that existed at the same time."""
    by_owner: dict[str, list[MachineLifetime]] = defaultdict(list)
    for lifetime in lifetimes:
        by_owner[lifetime.owner].append(lifetime)
    for mine in by_owner.values():
        for one, other in combinations(mine, 2):
            if one.begin_s < other.end_s and other.begin_s < one.end_s:
                yield one, other


def _is_abandoned(evidence: Evidence, lifetime: MachineLifetime) -> bool:
    tag = parse_tag(lifetime.machine.request.name)
    key = evidence.tables.tags.get(str(tag))
    return key is not None and evidence.tables.attempts[key].state is AttemptState.ABANDONED


def wasted_s(evidence: Evidence, lifetimes: list[MachineLifetime]) -> float:
    """Return the seconds in which machines existed that nobody had, past the time that finding one takes.

    Before a list shows a machine nobody can know of it, so that one that is found counts from there.
    """
    total_s = 0.0
    window_s = resolve_window_s(evidence)
    for lifetime in lifetimes:
        bound_s = lifetime.bound_s
        if bound_s is None:
            total_s += max(0.0, lifetime.end_s - lifetime.begin_s)
        else:
            known_s = bound_s if lifetime.listed_s is None else lifetime.listed_s
            total_s += max(0.0, min(bound_s, lifetime.end_s) - known_s - window_s)
    return total_s


def surplus_s(lifetimes: list[MachineLifetime]) -> float:
    """Return how long machines that nobody ever had existed after a list had shown them."""
    return sum(
        max(0.0, lifetime.end_s - lifetime.listed_s)
        for lifetime in lifetimes
        if lifetime.bound_s is None and lifetime.listed_s is not None
    )


def resolve_window_s(evidence: Evidence) -> float:
    """Return how long it may take to act on what was seen, and all that kept us from seeing or acting."""
    kept_from_acting_s = sum(
        it.seconds for it in (*evidence.down, *evidence.outages, *evidence.blind_windows, *evidence.braked)
    )
    return evidence.settle_s / 3 + kept_from_acting_s


def check_foreign_machines(evidence: Evidence) -> Iterator[Violation]:
    """I9: whatever is not ours is never touched, however much its name looks like ours."""
    now = evidence.world.now()
    for machine_id, name in evidence.decoys.items():
        if not evidence.world.machines[machine_id].is_alive(now):
            yield Violation("I9 foreign machines", f"{name} is gone")
    for line in evidence.world.record.lines:
        since = evidence.decoys_since.get(line.machine_id)
        if line.endpoint in MUTATING_CALLS and since is not None and line.at >= since:
            yield Violation("I9 foreign machines", f"{line.endpoint} of {evidence.decoys[line.machine_id]}")


def check_price_caps(evidence: Evidence) -> Iterator[Violation]:
    """I18: no create call for a machine whose GPUs and disk cost more than it may."""
    for call in evidence.create_calls:
        most = call.hourly_usd_max
        if most is not None and call.usd_per_hour > Fraction(most) + CAP_ROUNDING:
            price = float(call.usd_per_hour)
            yield Violation("I18 price cap", f"{call.tag} costs {price:.4f} USD an hour, {most} is allowed")


def check_wanted(evidence: Evidence) -> Iterator[Violation]:
    """I14: no machine is removed that its own instance wants, whoever had its id before."""
    for what in evidence.wrong_deletes:
        yield Violation("I14 wanted", what)


def check_account(evidence: Evidence) -> Iterator[Violation]:
    """I24: while another account is shown, nobody is told a loss and nothing is done there."""
    if evidence.strangers is None:
        return
    for what in evidence.false_losses:
        yield Violation("I24 account", what)
    now = evidence.strangers.now()
    for machine in evidence.strangers.machines.values():
        if not machine.is_alive(now):
            yield Violation("I24 account", f"the stranger {machine.name} is gone")
    for line in evidence.strangers.record.lines:
        if line.endpoint in MUTATING_CALLS | {"create"}:
            yield Violation("I24 account", f"{line.endpoint} on somebody else's account: {line.outcome}")
    if evidence.quiet and VANISHING_HELD in evidence.tables.flags:
        yield Violation("I24 account", "our account is back, and no loss is believed yet")


def check_ledger(evidence: Evidence, lifetimes: list[MachineLifetime]) -> Iterator[Violation]:
    """I13: the cloud bills for no second that our own records do not account for."""
    if evidence.clock_jumps:
        # Our records are stamped by the wall clock.
        return
    now = evidence.world.now()
    slack_s = resolve_window_s(evidence) + evidence.settle_s
    for lifetime in lifetimes:
        row = evidence.tables.instances.get(lifetime.owner)
        if row is None or row.instance.cloud_id != lifetime.machine.id:
            continue
        billed_s = billed_gpu_s(lifetime.machine, now)
        if billed_s > _recorded_s(evidence, row.instance) + slack_s + _refused_s(
            evidence, lifetime.machine.id
        ):
            yield Violation("I13 ledger", f"{lifetime.machine.name} was billed for {billed_s:.0f} s")


def _refused_s(evidence: Evidence, machine_id: str) -> float:
    """Return for how long a machine has stayed because the cloud refused its removal, time and again."""
    asked = [
        it for it in evidence.world.record.lines if (it.endpoint, it.machine_id) == ("delete", machine_id)
    ]
    return sum(
        min(again.at - refused.at, ASKED_AGAIN_S_MAX)
        for refused, again in pairwise(asked)
        if refused.outcome != "ok"
    )


def _recorded_s(evidence: Evidence, it: Instance) -> float:
    """Return for how long our records say that the instance had a machine that costs money."""
    history = sorted(
        (event for event in evidence.tables.events.values() if event.instance_id == it.id),
        key=lambda event: event.sequence,
    )
    paid_s, since = 0.0, history[0].at if history else None
    for event in history:
        if event.after == Status.EXITED.value and since is not None:
            paid_s, since = paid_s + (event.at - since).total_seconds(), None
        elif event.after in (Status.STARTING.value, Status.RUNNING.value) and since is None:
            since = event.at
    if since is not None:
        # What failed and is kept all the same costs as before, and the record says so.
        ended_at = evidence.ended_at if _may_have_a_machine(it) else None
        end = history[-1].at if ended_at is None else ended_at
        paid_s += (end - since).total_seconds()
    return paid_s
