"""What a user does in a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from gpuherd.domain.instance.lease import NO_TERMS, Terms

OPERATIONS_MAX = 8


@dataclass(frozen=True)
class UserOperation:
    """One thing that a user does, so long after the storm began."""

    at_s: float
    kind: str
    # Which of the instances that this user has made: the n-th, counted round.
    target: int = 0
    webhook: bool = False
    health_check: bool = False
    keep: bool = False
    disk_gb: int = 60
    hourly_usd_max: Decimal | None = None
    # How long it may wait for capacity.
    capacity_wait_s: int = 0
    terms: Terms = NO_TERMS
    labels: Mapping[str, str] = field(default_factory=dict)
    # How its machine is used, and how long its user lives who says so every now and then.
    use: str = "busy"
    beats_for_s: float = 0.0
    # Of a new lease: how long it is, and how long before the end of the old one it is asked for.
    seconds: int = 0
    before_end_s: float | None = None
    # Whether another instance takes over when the cloud takes the machine back, and how long both stay.
    is_replaced: bool = False
    handover_s: int = 0
