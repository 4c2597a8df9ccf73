"""A cloud that gives the id of a machine that is gone to the next one that it makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from gpuherd.domain.instance.launch_spec import TAG_VARIABLE
from gpuherd.domain.instance.rent_attempt import parse_tag
from gpuherd.simulator.simulated_machine import SimulatedMachine
from gpuherd.simulator.simulated_request import CreateRequest
from gpuherd.simulator.world import World

# How often a cloud does this at all.
REUSES_PROBABILITY = 0.3
# How long an id rests. Novita's are sixteen random hex digits, which hardly ever come again at all; a cloud
# that has a pool of them lets an id rest for longer than a command to the machine that had it takes: a list
# is believed for a minute before a stop or a delete, which goes out within seconds and may hang for half a
# minute. One that hands an id on within seconds makes every delete by id a matter of luck, for all its users.
RESTS_S = (120.0, 120.0, 300.0)


@dataclass(frozen=True)
class IdReuse:
    """How likely a new machine gets an old id, and how long that one must have been free."""

    probability: float = 0.0
    after_s: float = 0.0


NEVER_REUSED = IdReuse()


def draw_id_reuse(seed: int) -> IdReuse:
    """Draw what a cloud does with its ids: from a chance of its own, so that all else stays as it is."""
    rng = Random(f"reused ids {seed}")
    if rng.random() >= REUSES_PROBABILITY:
        return NEVER_REUSED
    return IdReuse(rng.choice((0.5, 1.0)), rng.choice(RESTS_S))


class ReusingWorld(World):
    """Remembers whose id was given away: the machines that are gone are still part of the truth."""

    def __init__(self, *args: Any, reuse: IdReuse, id_rng: Random, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reuse = reuse
        self._id_rng = id_rng
        self.former: list[SimulatedMachine] = []
        self.on_reuse: Callable[[SimulatedMachine], None] = lambda _: None

    def draw_id(self, request: CreateRequest) -> str:
        # Nobody could tell two machines of one id and one tag apart, and no cloud needs to make them.
        free = [
            it for it in self.machines.values() if self._is_free(it) and not _same_tag(it.request, request)
        ]
        if not free or self._id_rng.random() >= self._reuse.probability:
            return super().draw_id(request)
        before = self._id_rng.choice(free)
        del self.machines[before.id]
        self.former.append(before)
        self.on_reuse(before)
        return before.id

    def _is_free(self, machine: SimulatedMachine) -> bool:
        """Tell whether a machine is gone, and nothing that was asked of it is still to come."""
        if machine.id in self.listed or machine.gone_at is None:
            return False
        pending = any(event.machine_id == machine.id for event in self.timeline.events)
        return not pending and self.now() >= machine.gone_at + self._reuse.after_s


def _same_tag(one: CreateRequest, other: CreateRequest) -> bool:
    return not _tags(one).isdisjoint(_tags(other))


def _tags(request: CreateRequest) -> set[str]:
    return {str(parse_tag(request.name)), dict(request.envs).get(TAG_VARIABLE, "None")} - {"None"}
