"""An attempt: one create call, written down before its first byte goes out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from gpuherd.domain.clock_reading import ClockReading
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
