"""One create call, and the tag that proves which machine it made."""

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
    """The outcome of a create call; unknown is one of them."""

    SENT = "sent"
    BOUND = "bound"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    # Missing from credible lists for long enough. If it appears later, it is surplus.
    ABANDONED = "abandoned"


OPEN_STATES = frozenset({AttemptState.SENT, AttemptState.UNKNOWN})


# The latest calls of an instance stay on record, whatever their outcome. Of older calls only refused ones are
# removed. This limits what a pass reads, however long an instance waits for capacity.
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
    # None if the launch spec had only one possible mode.
    billing_mode: BillingMode | None = None
    # The clock readings when it was sent: the wall clock may be set twice before that is noticed. None for
    # calls of older versions.
    sent_reading: ClockReading | None = None

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def offer_key(self) -> OfferKey:
        return OfferKey(self.product_id, self.region, self.billing_mode)


TAG_PREFIX = "gh1"
NAME_MAX_CHARS = 180


# Far more calls than one instance can make, and within a 32-bit integer.
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
    # Empty in tags of versions before 0.2.0.
    nonce: str = ""

    def __str__(self) -> str:
        known = f"{TAG_PREFIX}-{self.installation}-{self.instance_key}-{self.attempt}"
        return f"{known}-{self.nonce}" if self.nonce else known


def cloud_name(name: str, tag: Tag | str) -> str:
    """Return the name of the machine in the cloud."""
    clean = _NOT_ALLOWED.sub("-", name.casefold()).strip("-")[:NAME_MAX_CHARS].strip("-")
    return f"{clean or 'gpu'}--{tag}"


def parse_tag(machine_name: str) -> Tag | None:
    """Return the tag at the end of a machine's name; None if there is none."""
    if found := _TAG.search(machine_name):
        return Tag(found[2], found[3], int(found[4]), found[5] or "")
    return None


def machine_tag(machine: Machine) -> str | None:
    """Return the tag of a machine: from its name, or from its environment if the name has none."""
    found = parse_tag(machine.name)
    return str(found) if found else machine.env_tag or None


def owner_tag(machine: Machine) -> Tag | None:
    """Return the parsed tag of a machine; None if it has none."""
    # The name has the tag behind a separator; the environment has only the tag.
    return parse_tag(f"--{tag}") if (tag := machine_tag(machine)) else None


def plain_name(machine_name: str) -> str:
    """Return the name without our tag, as people want to see it."""
    return _TAG.sub("", machine_name)
