"""A shared installation: a machine that proves that a second database rents under our installation id."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.tag import parse_tag
from gpuherd.domain.instance.attempt import ATTEMPTS_KEPT, Attempt


def is_made_by_another(
    machine: Machine, attempts: Iterable[Attempt], installation: str, since: datetime
) -> bool:
    """Tell whether a machine carries our id, was made after `since`, and by none of our calls.

    `attempts` are those of the instance that its tag names, read after the list that showed the machine. What
    was made earlier proves nothing: it may be of a life of this database that an old copy has replaced.
    """
    # The environment may have been copied from a machine of ours, together with what else people copy.
    tag = parse_tag(machine.name)
    if tag is None or tag.installation != installation:
        return False
    # guard: what an earlier life made raises no alarm
    if machine.created_at is None or machine.created_at <= since:
        return False
    known = {it.tag: it.n for it in attempts}
    # Refused calls of long ago are forgotten, so that such a number may have been ours.
    may_be_forgotten = tag.attempt <= max(known.values(), default=0) - ATTEMPTS_KEPT
    return str(tag) not in known and not may_be_forgotten
