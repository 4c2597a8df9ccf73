"""Fault kinds, and the faults that are set.

Which calls they strike, how often, for how long, and with what odds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from types import MappingProxyType

from gpuherd.simulator.calls import ApiEndpoint, Call


class FaultKind(StrEnum):
    """Everything that can go wrong on purpose."""

    REFUSE = "refuse"
    SOLD_OUT = "sold_out"
    RATE_LIMIT = "rate_limit"
    OUTAGE = "outage"
    HANG = "hang"
    LOST_REPLY_BEFORE_COMMIT = "lost_reply_before_commit"
    LOST_REPLY_AFTER_COMMIT = "lost_reply_after_commit"
    ERROR_AFTER_COMMIT = "error_after_commit"
    LATE_COMMIT = "late_commit"
    GARBAGE = "garbage"
    START_WENT_THROUGH = "start_invalid_state_but_went_through"
    GET_404_GLITCH = "get_404_glitch"
    LIST_LAG = "list_lag"
    EMPTY_LIST = "empty_list"
    PARTIAL_LIST = "partial_list"
    STATUS_FLAP = "status_flap"
    UNKNOWN_STATUS = "unknown_status"
    DROP_NAME = "drop_name"
    SLOW_PULL = "slow_pull"
    PULL_FAILURE = "pull_failure"
    RECLAIM = "reclaim"
    WRONG_METRICS = "wrong_metrics"
    WRONG_BILL = "wrong_bill"
    APP_DOWN = "app_down"
    APP_ERROR_PAGE = "app_error_page"


@dataclass(frozen=True, slots=True)
class FaultKindSpec:
    """What a kind of fault means, where it strikes unless told otherwise, and its styles, usual one first."""

    meaning: str
    endpoints: tuple[ApiEndpoint, ...] = ()
    styles: tuple[str, ...] = ()
    # Any other word is a style too (a status that the cloud does not have).
    free_style: bool = False


NOVITA_ENDPOINTS = frozenset(ApiEndpoint) - {ApiEndpoint.APP}
E = ApiEndpoint
_CREATE_ONLY = (E.CREATE,)
FAULT_KIND_SPECS: Mapping[FaultKind, FaultKindSpec] = MappingProxyType(
    {
        FaultKind.REFUSE: FaultKindSpec(
            "answers `status` with `reason` and does nothing; may quote the registry login of a create",
            (),
            ("plain", "quotes_login"),
        ),
        FaultKind.SOLD_OUT: FaultKindSpec("no stock for whatever matches", (E.CREATE, E.START, E.MIGRATE)),
        FaultKind.RATE_LIMIT: FaultKindSpec("answers 429, with `retry_after` if one is given"),
        FaultKind.OUTAGE: FaultKindSpec(
            "nothing works: `status` as JSON or page, or a cut", (), ("json", "html", "cut")
        ),
        FaultKind.HANG: FaultKindSpec("answers `seconds` late", (), ("after_commit", "before_commit")),
        FaultKind.LOST_REPLY_BEFORE_COMMIT: FaultKindSpec(
            "cuts the connection and does nothing", _CREATE_ONLY
        ),
        FaultKind.LOST_REPLY_AFTER_COMMIT: FaultKindSpec(
            "does the work, then cuts the connection", _CREATE_ONLY
        ),
        FaultKind.ERROR_AFTER_COMMIT: FaultKindSpec("does the work, then answers `status`", _CREATE_ONLY),
        FaultKind.LATE_COMMIT: FaultKindSpec(
            "cuts the connection and does the work `seconds` later", _CREATE_ONLY
        ),
        FaultKind.GARBAGE: FaultKindSpec(
            "does the work, then answers nonsense",
            _CREATE_ONLY,
            (
                *("broken_json", "html", "empty", "empty_id", "number_id", "null_id", "no_id"),
                *("list", "text", "binary", "cut", "wrong_type"),
            ),
        ),
        FaultKind.START_WENT_THROUGH: FaultKindSpec(
            "starts, and says `invalid state change` all the same", (E.START,)
        ),
        FaultKind.GET_404_GLITCH: FaultKindSpec("denies a machine that exists", (E.GET,)),
        FaultKind.LIST_LAG: FaultKindSpec(
            "lists a new machine only `seconds` after its creation", (E.CREATE,)
        ),
        FaultKind.EMPTY_LIST: FaultKindSpec("lists nothing at all, with status 200", (E.LIST,)),
        FaultKind.PARTIAL_LIST: FaultKindSpec(
            "lists wrongly", (E.LIST,), ("missing_page", "duplicated_page", "wrong_total", "short_page")
        ),
        FaultKind.STATUS_FLAP: FaultKindSpec(
            "shows a running machine with an earlier status", (E.GET, E.LIST), ("starting",), free_style=True
        ),
        FaultKind.UNKNOWN_STATUS: FaultKindSpec(
            "shows a status that nobody knows", (E.GET, E.LIST), ("hibernating",), free_style=True
        ),
        FaultKind.DROP_NAME: FaultKindSpec(
            "forgets the name that was asked for", (E.CREATE,), ("truncate", "replace", "empty")
        ),
        FaultKind.SLOW_PULL: FaultKindSpec(
            "pulls (or starts) `factor` times as long, or for ever", (E.CREATE,)
        ),
        FaultKind.PULL_FAILURE: FaultKindSpec(
            "fails to pull the image and says so with `message`", (E.CREATE,), ("exited", "stuck")
        ),
        FaultKind.RECLAIM: FaultKindSpec(
            "takes a spot machine back: notice `seconds` after it runs, gone `notice_s` later",
            (E.CREATE, E.START),
            ("time_at_reclaim", "time_at_notice"),
        ),
        FaultKind.WRONG_METRICS: FaultKindSpec(
            "shows an idle machine, half of the samples, or none", (E.METRICS,), ("zeros", "gap", "empty")
        ),
        FaultKind.WRONG_BILL: FaultKindSpec(
            "charges `factor` times the price, or forgets rows", (E.BILL,), ("factor", "missing_rows")
        ),
        FaultKind.APP_DOWN: FaultKindSpec("the program on a machine does not answer", (E.APP,)),
        FaultKind.APP_ERROR_PAGE: FaultKindSpec("the program answers 200 with an error page", (E.APP,)),
    }
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: when and where it strikes, and its particulars (which of them count depends on the kind)."""

    kind: FaultKind
    count: int | None = None
    probability: float = 1.0
    after_s: float = 0.0
    for_s: float | None = None
    endpoints: tuple[ApiEndpoint, ...] = ()
    cluster: str = ""
    product: str = ""
    name_contains: str = ""
    status: int | None = None
    reason: str = ""
    message: str = ""
    seconds: float | None = None
    notice_s: float | None = None
    factor: float | None = None
    style: str = ""
    retry_after: str = ""

    def __post_init__(self) -> None:
        rules = FAULT_KIND_SPECS[self.kind]
        if self.style and not rules.free_style and self.style not in rules.styles:
            known = ", ".join(rules.styles) or "none"
            raise ValueError(f"{self.kind} has no style {self.style!r}; its styles: {known}")
        if not 0 <= self.probability <= 1:
            raise ValueError("probability must be between 0 and 1")
        if self.count is not None and self.count < 1:
            raise ValueError("count must be at least 1")

    @property
    def chosen_style(self) -> str:
        return self.style or next(iter(FAULT_KIND_SPECS[self.kind].styles), "")

    @property
    def is_permanent(self) -> bool:
        """Return True if it strikes every time, so that a catalogue may show it too."""
        return self.count is None and self.probability >= 1

    def matches(self, call: Call) -> bool:
        # A fault for all endpoints means Novita's; the programs on the machines must be named.
        endpoints = self.endpoints or FAULT_KIND_SPECS[self.kind].endpoints or NOVITA_ENDPOINTS
        return (
            call.endpoint in endpoints
            and (not self.cluster or self.cluster == call.cluster_id)
            and (not self.product or self.product == call.product_id)
            and self.name_contains in call.name
        )


@dataclass(slots=True)
class ArmedFault:
    """A fault that has been set, and how often it has struck since."""

    fault: Fault
    since: float
    strikes: int = 0

    def is_live(self, now: float) -> bool:
        begin = self.since + self.fault.after_s
        over = self.fault.for_s is not None and now >= begin + self.fault.for_s
        spent = self.fault.count is not None and self.strikes >= self.fault.count
        return now >= begin and not over and not spent


class Faults:
    """All faults that are set; chance is asked only where the odds are not certain."""

    def __init__(self, now: Callable[[], float], rng: Random) -> None:
        self._now = now
        self._rng = rng
        self.armed: list[ArmedFault] = []
        self.strikes: Counter[str] = Counter()

    def add(self, *faults: Fault) -> None:
        self.armed.extend(ArmedFault(fault, self._now()) for fault in faults)

    def replace(self, faults: Iterable[Fault]) -> None:
        self.armed.clear()
        self.add(*faults)

    def draw(self, kind: FaultKind, call: Call) -> Fault | None:
        """Return the fault of this kind that strikes this call, if one does, and count it."""
        for armed in self.armed:
            fault = armed.fault
            if fault.kind is not kind or not fault.matches(call) or not armed.is_live(self._now()):
                continue
            if fault.probability >= 1 or self._rng.random() < fault.probability:
                armed.strikes += 1
                self.strikes[kind.value] += 1
                return fault
        return None

    def always_strikes(self, kind: FaultKind, call: Call) -> bool:
        """Return True if a fault of this kind strikes such a call every time, without striking."""
        return any(
            armed.fault.kind is kind
            and armed.fault.is_permanent
            and armed.fault.matches(call)
            and armed.is_live(self._now())
            for armed in self.armed
        )
