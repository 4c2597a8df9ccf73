"""What all requests for a goal share: who asks for which instance, and what was accepted before."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.domain.api_key import SYSTEM_CALLER, Caller
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.operation import Operation
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.usecases.instances.read_instance import find_instance, find_named
from gpuherd.usecases.services import Services

# A try fails only when another writer succeeds, so a handful is plenty.
WRITE_TRIES_MAX = 20


@dataclass(frozen=True)
class GoalRequest:
    """The instance and the caller. With `by_name` the word is a name, also if it has the form of an id."""

    id_or_name: str
    by_name: bool = False
    caller: Caller = SYSTEM_CALLER
    claim: IdempotencyClaim | None = None


@dataclass(frozen=True)
class AcceptedGoal:
    """A stored goal: the instance and its operation. `replayed` if an equal request stored it before."""

    instance: Instance
    operation: Operation
    replayed: bool = False


def accepted_goal(instance: Instance) -> AcceptedGoal:
    """Return the goal that the instance has now."""
    assert instance.operation is not None, "every change of goal is an operation"
    return AcceptedGoal(instance, instance.operation)


async def claimed_goal(services: Services, claim: IdempotencyClaim | None) -> AcceptedGoal | None:
    """Return what an earlier, equal request got; None if there was none."""
    found = None if claim is None else await services.stores.instances.claimed_operation(claim)
    return None if found is None else AcceptedGoal(*found, replayed=True)


async def find_requested(services: Services, request: GoalRequest) -> Instance:
    """Return the instance that the request names."""
    find = find_named if request.by_name else find_instance
    return await find(services, request.id_or_name, request.caller)
