"""When many machines seem to vanish in one look: believed up to a limit, like the removal of surplus ones.

A list of another account is complete and lacks them all, and what their owners are told then cannot be taken
back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from gpuherd.domain.blast_limit import blast_limit
from gpuherd.domain.cloud.observation import ObservedMachine


@dataclass(frozen=True)
class Bound:
    """How many instances count on one of some machines, and on any machine at all."""

    lost: int
    instances: int


def newly_lost(changed: Iterable[ObservedMachine], confirmed_at: datetime | None) -> list[str]:
    """Return the machines that are proven absent by what has changed now.

    Those that were missing already when a person confirmed their loss do not need to be held.
    """
    return [
        it.machine.cloud_id
        for it in changed
        if it.missing_since is not None
        and it.missing_lists >= 2
        and (confirmed_at is None or it.missing_since > confirmed_at)
    ]


def unlisted(
    known: Mapping[str, ObservedMachine], listed: Collection[str], confirmed_at: datetime | None
) -> list[str]:
    """Return the machines that a list lacks and that are not believed lost yet.

    One may be proven absent sooner than the others that the same list lacks: because it was seen last at
    another time, or because the wall clock jumped. They are judged together.
    """
    return [
        cloud_id
        for cloud_id, it in known.items()
        if cloud_id not in listed
        and it.missing_lists < 2
        and (confirmed_at is None or it.missing_since is None or it.missing_since > confirmed_at)
    ]


def vanishing_brake(lost: int, lately: int, instances: int) -> str | None:
    """Say why the loss of machines is not believed now; None: it is.

    `lost` are missing from this list, `lately` were believed lost within the last cycle, of so many instances
    that have machines.
    """
    allowed = blast_limit(instances)
    if lost + lately <= allowed:
        return None
    return (
        f"{lost + lately} machines of {instances} instances are missing from the account's list at once, "
        f"{allowed} would be believed; it may be the list of another account. This ends by itself when they "
        "are listed again; if they are really gone: gpuherd cloud confirm-loss"
    )
