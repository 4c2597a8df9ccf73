"""Another account in the place of ours, for a while: by a wrong key, or by a mistake of the cloud."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from gpuherd.domain.instance.rent_attempt import TAG_PREFIX
from gpuherd.ports.clock_port import Clock
from gpuherd.simulator.simulated_catalogue import CloudCatalogue
from gpuherd.simulator.simulated_request import CreateRequest
from gpuherd.simulator.world import World

# The keys of the two accounts, as far as the database knows them.
OUR_ACCOUNT, OTHER_ACCOUNT = "ours", "other"
# So many instances are more than the brake on vanishing lets go at once, whatever users do to some of them.
HERD = 8
# Faults that deny machines by themselves: with them a loss may be told though nobody mixed anything up.
DENYING_FAULTS = frozenset({"denials", "total_denial"})


class SwapKind(StrEnum):
    """What brings the other account into our sight."""

    # The service is restarted with the key of another account, and later with its own again.
    OTHER_KEY = "other_key"
    # Our own key is answered with what is on another account: its list, and 404 for each machine of ours.
    MIXED_UP = "mixed_up"


@dataclass(frozen=True)
class AccountSwap:
    """From when, in seconds after the storm began, and for how long."""

    kind: SwapKind
    at_s: float
    for_s: float


def draw_swap(rng: Random, span_s: float) -> tuple[AccountSwap, int]:
    """Draw when the other account is shown, and how many instances we have before."""
    kind = rng.choice(tuple(SwapKind))
    at_s = rng.uniform(5.0, span_s * 0.4)
    swap = AccountSwap(kind, at_s, rng.uniform(30.0, span_s * 0.9 - at_s))
    return swap, HERD if kind is SwapKind.MIXED_UP else rng.choice((0, 1, 1, 2, HERD))


def strangers_world(clock: Clock, seed: int, catalogue: CloudCatalogue, request: CreateRequest) -> World:
    """Return the account of somebody else, with up to three machines on it."""
    rng = Random(f"strangers {seed}")
    world = World(clock, rng, catalogue)
    for n in range(rng.randint(0, 3)):
        name = rng.choice(("job-0", f"job-0--{TAG_PREFIX}-0ddba115-{n:026d}-1"))
        world.create(replace(request, name=name))
    return world
