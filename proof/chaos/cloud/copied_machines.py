"""Machines that look like ours and are not: made by people who copy, and by a copy of our database."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random

from gpuherd.domain.instance.instance import ID_PREFIX
from gpuherd.domain.instance.launch_spec import TAG_VARIABLE
from gpuherd.domain.instance.rent_attempt import Attempt, AttemptState, Tag, cloud_name
from gpuherd.simulator.simulated_request import CreateRequest
from proof.chaos.checks.evidence import Evidence

# How often somebody copies at all.
COPIES_PROBABILITY = 0.3
DAYS_LATER_S = timedelta(days=3).total_seconds()
KINDS = ("copied_name", "copied_environment", "days_later", "second_database", "second_database_stranger")


@dataclass(frozen=True)
class MachineCopy:
    """What is made, so long after the storm began."""

    at_s: float
    kind: str


def draw_copies(seed: int, span_s: float) -> tuple[MachineCopy, ...]:
    """Draw what is copied in a schedule: from a chance of its own, so that all else stays as it is."""
    rng = Random(f"copies {seed}")
    if rng.random() >= COPIES_PROBABILITY:
        return ()
    kinds = rng.sample(KINDS, rng.randint(1, 3))
    return tuple(MachineCopy(rng.uniform(0.0, span_s), kind) for kind in kinds)


def place_copy(evidence: Evidence, kind: str, request: CreateRequest) -> bool:
    """Make such a machine, and note it as one that nobody may touch; False while there is nothing to copy."""
    bound = _latest(evidence, AttemptState.BOUND)
    if bound is None:
        return False
    closed = _latest(evidence, AttemptState.ABANDONED) or bound
    installation = evidence.tables.flags["installation"]
    key = bound.instance_id.removeprefix(ID_PREFIX)
    name, env = {
        "copied_name": (cloud_name("copy", bound.tag), ""),
        "copied_environment": ("my-own", bound.tag),
        "days_later": (cloud_name("copy", closed.tag), closed.tag),
        "second_database": (cloud_name("theirs", Tag(installation, key, bound.n, "zzzzzz")), ""),
        "second_database_stranger": (cloud_name("theirs", Tag(installation, "z" * 26, 1, "zzzzzz")), ""),
    }[kind]
    envs = ((TAG_VARIABLE, env),) if env else ()
    machine_id = evidence.world.create(replace(request, name=name, envs=envs))
    if kind == "days_later":
        # Nobody waits for days here: it says of itself that it is of another time.
        evidence.world.machines[machine_id].created_at += DAYS_LATER_S
    evidence.add_decoy(machine_id, name)
    evidence.coverage["machine copied"] += 1
    return True


def _latest(evidence: Evidence, state: AttemptState) -> Attempt | None:
    """Return the latest call in this state whose machine, if it has one, is on record."""
    found = [it for it in evidence.tables.attempts.values() if it.state is state]
    return max(found, key=lambda it: (it.sent_at, it.instance_id, it.n), default=None)
