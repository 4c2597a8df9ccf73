"""What gpuherd assumes about Novita, and single calls that test it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuherd.adapters.novita.novita_call import (
    NoReply,
    NotSent,
    NovitaExchange,
    NovitaReply,
)
from gpuherd.ops.doctor_results import Agreement, CannotLook, LiveFinding
from gpuherd.ports.clock_port import Clock


@dataclass(frozen=True)
class Assumption:
    """One assumption. `changes` says what a difference means for the service."""

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


# Free: only reads.
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
    "no list is complete: gpuherd cannot prove that a machine is gone, and does not delete orphans",
)


LONG_PAGES = Assumption(
    "list.page-size",
    "a page of 1,000 is accepted",
    "pages of 100 are asked for: ten times the calls for the same list",
)


PAGE_PARAMETER = Assumption(
    "list.page-parameter",
    "pages are numbered by `pageNum`, from 1 or from 0 and 1 alike",
    "with more machines than a page holds, no list is complete: gpuherd cannot prove that a machine is gone, "
    "and does not delete orphans",
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


# Paid: about a machine that is rented for the test.
TAG_NAME = Assumption(
    "tag.name",
    "the name is kept whole, with the tag at its end",
    "the environment alone tells whose a machine is; where that is not returned either, gpuherd stops all "
    "creates at the first machine (CREATES_BLOCKED)",
)


TAG_ENV = Assumption(
    "tag.environment",
    "GET and list return the environment, so GPUHERD_TAG is a second witness",
    "a machine whose name is lost cannot be found by its environment; the name alone tells whose it is",
)


LIST_LAG = Assumption(
    "list.lag",
    "a new machine is listed so soon that 30 s and four times as long are below GPUHERD_CREATE_SETTLE",
    "a create without an answer may be given up and called again before its machine is seen: a surplus "
    "machine, collected when it is listed",
)


LIST_ROW = Assumption(
    "list.row",
    "a row has what GET has: endpoints of ports, and how to log in",
    "each new machine costs one GET more before its endpoints are known",
)


STATUSES = Assumption(
    "statuses.words",
    "only the documented words, and `pulling` before `running`",
    "a machine in an unknown status is waited for until its deadline",
)


STAMPS = Assumption(
    "stamps.started",
    "lastStartedAt and lastStoppedAt are when it came to run, and to `exited`",
    "the meter goes by the statuses that it has seen, to the second of its lists",
)


PRICE = Assumption(
    "price.instance",
    "instancePrice is the price of the offer",
    "the price of the offer is what counts; a bill that differs shows in `gpuherd costs`",
)


SPOT = Assumption(
    "spot.fields",
    "a spot machine has spotStatus `running` and spotReclaimTime 0 until its notice",
    "a notice may be missed; the loss is seen when the machine has exited",
)


STATE_REFUSAL = Assumption(
    "refusal.state",
    "a start of what runs is refused with `invalid state change`",
    "such a refusal ends the operation instead of being looked into",
)


CREATE_REFUSAL = Assumption(
    "refusal.create",
    "an impossible create is refused with 4xx and a reason",
    "a refused create is taken for one without an answer, and looked for until GPUHERD_CREATE_SETTLE is over",
)


PORTS = Assumption(
    "start.ports",
    "TCP and SSH ports change with every start",
    "nothing: endpoints are read anew after each start all the same",
)


GONE = Assumption(
    "delete.gone",
    "a deleted machine is soon unknown; to delete it again is 404, 400 with RESOURCE_NOT_FOUND, or accepted",
    "a removal is asked for again until a list shows that it is done",
)


PAID_METRICS = Assumption(
    "metrics.machine",
    METRICS.assumed,
    METRICS.changes,
)


BILL_SPAN = Assumption(
    "bill.span",
    "GPU seconds are billed from `pulling` to the stop, at the price of the offer",
    "`gpuherd costs` differs from the bill by that; the comparison of the month says by how much",
)


PAID = (
    *(TAG_NAME, TAG_ENV, LIST_LAG, LIST_ROW, STATUSES, STAMPS, PRICE, SPOT, STATE_REFUSAL, CREATE_REFUSAL),
    *(PORTS, GONE, PAID_METRICS, BILL_SPAN),
)


TIMEOUT_S = 20.0


# The doctor's share of the calls that the service may make. The service needs far less than its limit.
SHARE = 0.25


SPACING_MIN_S = 0.1
RETRY_AFTER_MAX_S = 30.0


@dataclass(frozen=True)
class Throttled:
    """A 429 reply. The doctor does not provoke any."""

    retry_after_s: float | None


@dataclass
class NovitaCalls:
    """Calls Novita with pauses, and records what the replies say about limits."""

    exchange: NovitaExchange
    clock: Clock
    spacing_s: float
    limit_headers: dict[str, str] = field(default_factory=dict)
    throttled: list[Throttled] = field(default_factory=list)
    made: int = 0
    _next_s: float = float("-inf")

    async def get(self, path: str, **params: str) -> NovitaReply:
        """Read, with one retry after no reply or a server error: a single failure is no finding."""
        why = ""
        for may_repeat in (True, False):
            await self._turn()
            try:
                reply = await self.exchange.get(path, params, TIMEOUT_S, fresh=True)
            except (NotSent, NoReply) as failed:
                why = str(failed)
                continue
            if reply.status < 500 or not may_repeat:
                return await self._noted(reply)
        raise CannotLook(f"Novita gave no answer to {path}: {why}")

    async def post(self, path: str, body: Mapping[str, Any]) -> NovitaReply:
        await self._turn()
        try:
            reply = await self.exchange.post(path, body, TIMEOUT_S)
        except (NotSent, NoReply) as failed:
            raise CannotLook(f"Novita gave no answer to {path}: {failed}") from None
        return await self._noted(reply)

    async def _turn(self) -> None:
        await self.clock.sleep(max(0.0, self._next_s - self.clock.monotonic()))
        self._next_s = self.clock.monotonic() + self.spacing_s
        self.made += 1

    async def _noted(self, reply: NovitaReply) -> NovitaReply:
        self.limit_headers.update(reply.limit_headers)
        if reply.status == 429:
            self.throttled.append(Throttled(reply.retry_after_s))
            wait_s = RETRY_AFTER_MAX_S if reply.retry_after_s is None else reply.retry_after_s
            self._next_s = self.clock.monotonic() + min(wait_s, RETRY_AFTER_MAX_S)
        return reply


def spacing_s(calls_per_minute: int) -> float:
    """Return the pause between two calls that leaves the service its share of the limit."""
    return max(SPACING_MIN_S, 60 / (calls_per_minute * SHARE)) if calls_per_minute else SPACING_MIN_S
