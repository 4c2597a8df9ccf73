"""The invariant of lineages: one heir for each link, at most two machines, and at rest one or none."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations

from gpuherd.domain.instance.instance import Goal, Instance
from gpuherd.domain.instance.replacement import awaits_handover
from proof.chaos.checks.evidence import Evidence, Violation
from proof.chaos.checks.money_checker import MachineLifetime, resolve_window_s

RULE = "I25 lineage"


def is_heir(it: Instance) -> bool:
    """Tell whether an instance takes over from another: nobody asked for it."""
    return it.chain is not None and it.chain.replaces is not None


def check_lineages(evidence: Evidence, lifetimes: list[MachineLifetime]) -> Iterator[Violation]:
    """I25: never two for one link; two machines only of an instance and its heir; at rest one or none."""
    if evidence.ambiguous_names:
        yield Violation(RULE, "a name of one lineage was said to be ambiguous")
    lineages: dict[str, list[Instance]] = defaultdict(list)
    for row in evidence.tables.instances.values():
        if row.instance.chain is not None:
            lineages[row.instance.lineage].append(row.instance)
    for lineage, members in lineages.items():
        links = Counter(it.chain.link for it in members if it.chain is not None)
        if twice := [link for link, count in links.items() if count > 1]:
            yield Violation(RULE, f"links {twice} of {lineage} have two instances")
        yield from _check_machines(evidence, lineage, members, lifetimes)
        yield from _check_handovers(members)
        if evidence.quiet:
            yield from _check_rest(evidence, lineage, members)


def _check_machines(
    evidence: Evidence, lineage: str, members: list[Instance], lifetimes: list[MachineLifetime]
) -> Iterator[Violation]:
    known = {it.id: it for it in members}
    machines = [it for it in lifetimes if it.owner in known]
    pairs = [
        (one, other)
        for one, other in combinations(machines, 2)
        if one.owner != other.owner and one.begin_s < other.end_s and other.begin_s < one.end_s
    ]
    for one, other in pairs:
        if not _takes_over(known[one.owner], known[other.owner]) and not _came_back(evidence, (one, other)):
            yield Violation(RULE, f"{one.owner} and {other.owner} of {lineage} had machines at once")
    for pair, another in combinations(pairs, 2):
        three = {it.owner: it for it in (*pair, *another)}
        begin_s = max(it.begin_s for it in three.values())
        if len(three) < 3 or begin_s >= min(it.end_s for it in three.values()):
            continue
        if not _came_back(evidence, three.values()):
            yield Violation(RULE, f"{sorted(three)} of {lineage} had machines at once")


def _came_back(evidence: Evidence, machines: Iterable[MachineLifetime]) -> bool:
    """Tell whether they were there at once because the cloud had denied some in lists and questions alike.

    Those were gone for all that anybody could know; when they come back they are removed in so long.
    """
    machines = list(machines)
    begin_s, end_s = max(it.begin_s for it in machines), min(it.end_s for it in machines)
    limit_s = resolve_window_s(evidence)
    return any(it.begin_s <= begin_s and end_s <= it.end_s + limit_s for it in evidence.blind_windows)


def _check_handovers(members: list[Instance]) -> Iterator[Violation]:
    known = {it.id: it for it in members}
    for it in members:
        heir = None if it.chain is None else it.chain.heir
        if heir is not None and heir.has_taken_over and known[heir.id].ready_at is None:
            yield Violation(RULE, f"{it.id} was removed before {heir.id} could be used")


def _takes_over(one: Instance, other: Instance) -> bool:
    return any(it.chain is not None and it.chain.replaces == of.id for it, of in ((one, other), (other, one)))


def _check_rest(evidence: Evidence, lineage: str, members: list[Instance]) -> Iterator[Violation]:
    now = evidence.world.now()
    running = [
        it.id
        for it in members
        if (machine := evidence.world.machines.get(it.cloud_id or "")) and machine.status(now) == "running"
    ]
    if len(running) > 1:
        yield Violation(RULE, f"{running} of {lineage} rest with a machine each")
    for it in members:
        if it.goal is Goal.RUNNING and awaits_handover(it) and not (it.chain and it.chain.gave_up):
            yield Violation(RULE, f"{it.id} rests, and its heir has not taken over")
    ids = {it.id for it in members}
    ended = [
        it for it in evidence.accepted if it.instance_id in ids and it.kind in ("stop", "delete", "start")
    ]
    if ended and ended[-1].kind != "start" and running:
        yield Violation(RULE, f"{running} of {lineage} run after its user has ended it")
