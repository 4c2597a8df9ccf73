"""Ways in which the real Novita may do otherwise than its documents say."""

from __future__ import annotations

from enum import StrEnum


class Deviation(StrEnum):
    """What the simulator then does otherwise."""

    ENVS_HIDDEN = "neither list nor get returns the environment"
    ENDPOINTS_NOT_LISTED = "the list has no endpoints and no way to log in"
    PAGE_NO = "pages are numbered by pageNo; pageNum has no effect"
    SHORT_PAGES = "pages of more than 100 rows are refused"
    OTHER_NOT_FOUND = "an unknown machine is answered with 400 and words of its own"
    PRICES_IN_USD = "prices of products are in USD, with decimals"
    OTHER_LABELS = "clusters are not called as the regions of products"
    PORTS_KEPT = "ports stay the same over a stop and a start"
    BILL_ROUNDED_UP = "amounts of the bill are rounded up"
    BILL_BY_MINUTE = "every begun minute is billed"
    NO_INSTANCE_PRICE = "a machine does not say its price"
    NO_STAMPS = "a machine does not say when it was started"
    LIMITS_TOLD = "every answer tells a limit of 60 calls a minute"
