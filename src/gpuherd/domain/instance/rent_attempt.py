"""One create call, and the tag that proves whose machine it made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from gpuherd.domain.clock_reading import ClockReading
from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.offer import BillingMode, OfferKey


class AttemptState(StrEnum):
    """The outcome of one create call; unknown is an outcome of its own."""

    SENT = "sent"
    BOUND = "bound"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    # Long enough unseen in believable lists: a later sighting is surplus.
    ABANDONED = "abandoned"


OPEN_STATES = frozenset({AttemptState.SENT, AttemptState.UNKNOWN})


# So many of the latest calls of an instance stay on record, whatever became of them; of those before only the
# refused ones go. It bounds what a pass reads, however long a wish waits for capacity.
ATTEMPTS_KEPT = 100


@dataclass(frozen=True)
class Attempt:
    """One create call of one instance."""

    instance_id: str
    n: int
    tag: str
    state: AttemptState
    product_id: str
    product_name: str
    region: str
    cluster_id: str
    gpu_hourly_usd: Decimal
    sent_at: datetime
    boot_id: str
    image_url: str = ""
    closed_at: datetime | None = None
    cloud_id: str | None = None
    error_code: str = ""
    error: str = ""
    # None where the wish left no choice.
    billing_mode: BillingMode | None = None
    # What the clocks showed when it went out: the wall clock may be set twice before anybody notices. None of
    # calls that an older version made.
    sent_reading: ClockReading | None = None

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def offer_key(self) -> OfferKey:
        return OfferKey(self.product_id, self.region, self.billing_mode)


TAG_PREFIX = "gh1"
SEPARATOR = f"--{TAG_PREFIX}-"
NAME_MAX_CHARS = 180


# Every number up to here can be read back; far more calls than any wish can make, and a 32-bit integer.
ATTEMPT_MAX = 999_999_999


_PLACE = rf"{TAG_PREFIX}-([a-z0-9]{{8}})-([a-z0-9]{{26}})"


# guard: a tag of any number can be read
# guard: the tag stands at the end of a name
_TAG = re.compile(rf"--({_PLACE}-([1-9][0-9]{{0,8}})(?:-([a-z0-9]{{6}}))?)\Z")


_NOT_ALLOWED = re.compile(r"[^a-z0-9-]+")


@dataclass(frozen=True)
class Tag:
    """One attempt of one instance of one installation."""

    installation: str
    instance_key: str
    attempt: int
    # Empty in tags of before 0.2.0.
    nonce: str = ""

    def __str__(self) -> str:
        known = f"{TAG_PREFIX}-{self.installation}-{self.instance_key}-{self.attempt}"
        return f"{known}-{self.nonce}" if self.nonce else known


def cloud_name(name: str, tag: Tag | str) -> str:
    """Return the name under which the cloud shall know the machine."""
    clean = _NOT_ALLOWED.sub("-", name.casefold()).strip("-")[:NAME_MAX_CHARS].strip("-")
    return f"{clean or 'gpu'}--{tag}"


def parse_tag(machine_name: str) -> Tag | None:
    """Return the tag at the end of a machine's name, or None where there is none."""
    if found := _TAG.search(machine_name):
        return Tag(found[2], found[3], int(found[4]), found[5] or "")
    return None


def machine_tag(machine: Machine) -> str | None:
    """Return the tag that a machine carries: in its name, or in its environment should the name be lost."""
    found = parse_tag(machine.name)
    return str(found) if found else machine.env_tag or None


def owner_tag(machine: Machine) -> Tag | None:
    """Return whose create call made a machine, as far as its tag tells; None where it carries no tag."""
    # The name has the tag behind a separator, the environment has it alone.
    return parse_tag(f"--{tag}") if (tag := machine_tag(machine)) else None


def plain_name(machine_name: str) -> str:
    """Return the name without our tag, as people want to see it."""
    return _TAG.sub("", machine_name)
