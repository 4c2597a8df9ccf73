"""A machine that carries a tag of this very instance, but of a create call that we have no record of.

That happens when an old copy of the database was put back: the call was made and recorded in a life that this
database does not remember. Such a machine is taken instead of renting a second one.
"""

from __future__ import annotations

from gpuherd.domain.machine import Machine
from gpuherd.domain.orphan import LEAVING
from gpuherd.domain.sighting import Sighting
from gpuherd.domain.tag import owner_tag
from gpuherd.ports.store import Turn


def forgotten_machine(turn: Turn, installation: str) -> Machine | None:
    """Return the oldest such machine that is listed and stays."""
    candidates = [it for it in turn.sightings if _is_forgotten(it, turn, installation)]
    oldest = min(candidates, key=lambda it: it.machine.created_at or it.first_seen_at, default=None)
    return None if oldest is None else oldest.machine


def _is_forgotten(it: Sighting, turn: Turn, installation: str) -> bool:
    tag = owner_tag(it.machine)
    if tag is None or it.missing_since is not None or it.machine.phase in LEAVING:
        return False
    ours = tag.installation == installation and tag.instance_key == turn.instance.key
    return ours and all(attempt.n != tag.attempt for attempt in turn.attempts)
