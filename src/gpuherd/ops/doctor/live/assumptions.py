"""What the code assumes about Novita, and what each difference would change; docs/novita.md names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuherd.entrypoints.cli.commands.local.first_contact import Agreement, LiveFinding


@dataclass(frozen=True)
class Assumption:
    """One of them. `changes` is what a difference means for the service as it is."""

    check: str
    assumed: str
    changes: str

    def holds(self, seen: str, **facts: Any) -> LiveFinding:
        return self._finding(seen, Agreement.AS_ASSUMED, (), facts)

    def differs(self, seen: str, *settings: str, **facts: Any) -> LiveFinding:
        return self._finding(seen, Agreement.DIFFERS, settings, facts)

    def judged(self, holds: bool, seen: str, **facts: Any) -> LiveFinding:
        return self.holds(seen, **facts) if holds else self.differs(seen, **facts)

    def not_seen(self, why: str) -> LiveFinding:
        return self._finding(why, Agreement.NOT_SEEN, (), {})

    def _finding(
        self, seen: str, verdict: Agreement, settings: tuple[str, ...], facts: dict[str, Any]
    ) -> LiveFinding:
        return LiveFinding(self.check, self.assumed, seen, verdict, self.changes, settings, facts)


# Free: nothing but reads.
REGIONS = Assumption(
    "clusters.labels",
    "every region of a product on sale is a cluster of /clusters, by the code before the first space",
    "what is sold only in such a region is not offered",
)
PRICES = Assumption(
    "products.prices",
    "prices are whole numbers of 1/100,000 USD for a GPU and hour",
    "a product without a readable price is not offered; with another unit every price, limit and budget is "
    "wrong by it: rent nothing and report it",
)
SPOT_PRICES = Assumption(
    "products.spot",
    "spotPrice is below price wherever spot is among the billingMethods",
    "billingMode spot finds less, or costs more than on demand",
)
TEMPLATES = Assumption(
    "templates.form",
    "/templates has the rows under `template`, each with an `Id`, and a total",
    "templates cannot be found, so nothing can be rented from them",
)
NO_TEMPLATE = Assumption(
    "templates.unknown",
    "an unknown template is 400 or 404 with a reason or the words `template not found`",
    "a wrong template is told as a failure of Novita, and the create is tried again",
)
LIST = Assumption(
    "list.form",
    "/gpu/instances has the rows under `instances`, and their number under `total`",
    "no list is complete, so nothing is believed to be gone and nothing is collected",
)
LONG_PAGES = Assumption(
    "list.page-size",
    "a page of 1,000 is accepted",
    "pages of 100 are asked for: ten times the calls for the same list",
)
PAGE_PARAMETER = Assumption(
    "list.page-parameter",
    "pages are numbered by `pageNum`, from 1 or from 0 and 1 alike",
    "with more machines than a page holds, no list is complete: nothing is believed to be gone and nothing "
    "is collected",
)
NO_MACHINE = Assumption(
    "get.unknown",
    "an unknown machine is 404, or 400 with RESOURCE_NOT_FOUND",
    "the removal of a machine is never confirmed, so its instance stays `deleting` and its cost counts on",
)
BALANCE = Assumption(
    "billing.balance",
    "availableBalance is a whole number of 1/10,000 USD",
    "the balance is unknown: no warning before it runs out",
)
BILL_ROWS = Assumption(
    "billing.rows",
    "a bill row has startTime, ownerID, seconds, unit price and amount; the amount is rounded down to "
    "1/10,000 USD, amountDecimal is exact",
    "the month is compared with rows that cannot be read, or differ by the rounding of each",
)
VOLUMES = Assumption(
    "volumes.form",
    "/networkstorages/list has the rows under `data` with storageId and storageSize, and a total",
    "network volumes are missing from costs and leftovers",
)
METRICS = Assumption(
    "metrics.form",
    "metrics are one series for the CPU and one for each GPU, with timestamps in seconds",
    "idleness is never seen, so `idleSeconds` ends nothing; leases and silence do",
)
LIMITS = Assumption(
    "limits.headers",
    "no header tells of a limit, or none below NOVITA_RATE_LIMIT",
    "calls are answered with 429 and the rate is halved each time, until NOVITA_RATE_LIMIT is lower",
)
THROTTLED = Assumption(
    "limits.retry-after",
    "a 429 has a Retry-After",
    "without one the rate is halved and found anew",
)

FREE = (
    *(REGIONS, PRICES, SPOT_PRICES, TEMPLATES, NO_TEMPLATE, LIST, LONG_PAGES, PAGE_PARAMETER, NO_MACHINE),
    *(BALANCE, BILL_ROWS, VOLUMES, METRICS, LIMITS, THROTTLED),
)
