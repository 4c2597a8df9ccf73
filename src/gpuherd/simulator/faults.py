"""Kinds of faults, the calls that they strike, and the log of calls."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from random import Random
from types import MappingProxyType
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from gpuherd.simulator.simulated_request import CreateRequest

LOG_LENGTH = 10_000


class ApiEndpoint(StrEnum):
    """The short name of each call, the same in faults, counters and logs."""

    CLUSTERS = "clusters"
    PRODUCTS = "products"
    CPU_PRODUCTS = "cpu_products"
    CREATE = "create"
    LIST = "list"
    GET = "get"
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    DELETE = "delete"
    EDIT = "edit"
    UPGRADE = "upgrade"
    MIGRATE = "migrate"
    SET_AUTO_MIGRATE = "set_auto_migrate"
    TEMPLATES = "templates"
    TEMPLATE = "template"
    TEMPLATE_CREATE = "template_create"
    TEMPLATE_UPDATE = "template_update"
    TEMPLATE_DELETE = "template_delete"
    REGISTRY_AUTHS = "registry_auths"
    REGISTRY_SAVE = "registry_save"
    REGISTRY_DELETE = "registry_delete"
    NETWORK_STORAGES = "network_storages"
    NETWORK_STORAGE_CREATE = "network_storage_create"
    NETWORK_STORAGE_UPDATE = "network_storage_update"
    NETWORK_STORAGE_DELETE = "network_storage_delete"
    PREWARMS = "prewarms"
    PREWARM_QUOTA = "prewarm_quota"
    PREWARM_CREATE = "prewarm_create"
    PREWARM_EDIT = "prewarm_edit"
    PREWARM_DELETE = "prewarm_delete"
    NETWORKS = "networks"
    JOBS = "jobs"
    METRICS = "metrics"
    BILL = "bill"
    BALANCE = "balance"
    # Not a call to Novita: a request to the program on a machine.
    APP = "app"


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as faults and logs see it."""

    endpoint: ApiEndpoint
    name: str = ""
    product_id: str = ""
    cluster_id: str = ""
    machine_id: str = ""
    # The body of a create, so that it can be executed after its reply was lost.
    request: CreateRequest | None = None


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """One entry of the log. It contains no body, so no secret."""

    at: float
    endpoint: str
    name: str
    machine_id: str
    outcome: str


class CallLog:
    """Counts every call and keeps the latest ones."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lines: deque[LoggedCall] = deque(maxlen=LOG_LENGTH)

    def count(self, call: Call) -> None:
        self.counts[call.endpoint.value] += 1

    def note(self, at: float, call: Call, outcome: str) -> None:
        self.lines.append(LoggedCall(at, call.endpoint.value, call.name, call.machine_id, outcome))


class FaultKind(StrEnum):
    """The kinds of faults."""

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
    """The meaning of a kind of fault, its default endpoints, and its styles, usual one first."""

    meaning: str
    endpoints: tuple[ApiEndpoint, ...] = ()
    styles: tuple[str, ...] = ()
    # True if any other word is a style too (a status that the cloud does not have).
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
    """One fault: when and where it strikes, and its parameters (which ones count depends on the kind)."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    kind: FaultKind
    count: Annotated[int | None, Field(ge=1)] = None
    probability: Annotated[float, Field(ge=0, le=1)] = 1.0
    after_s: Annotated[float, Field(alias="afterSeconds", ge=0)] = 0.0
    for_s: Annotated[float | None, Field(alias="forSeconds", ge=0)] = None
    endpoints: tuple[ApiEndpoint, ...] = ()
    cluster: str = ""
    product: str = ""
    name_contains: Annotated[str, Field(alias="nameContains")] = ""
    status: Annotated[int | None, Field(ge=400, le=599)] = None
    reason: str = ""
    message: str = ""
    seconds: Annotated[float | None, Field(ge=0)] = None
    notice_s: Annotated[float | None, Field(alias="noticeSeconds", ge=0)] = None
    factor: Annotated[float | None, Field(ge=0)] = None
    style: str = ""
    retry_after: Annotated[str, Field(alias="retryAfter")] = ""

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
        # A fault for all endpoints means Novita's. Programs on machines must be named.
        endpoints = self.endpoints or FAULT_KIND_SPECS[self.kind].endpoints or NOVITA_ENDPOINTS
        return (
            call.endpoint in endpoints
            and (not self.cluster or self.cluster == call.cluster_id)
            and (not self.product or self.product == call.product_id)
            and self.name_contains in call.name
        )


@dataclass(slots=True)
class ArmedFault:
    """An armed fault, and how often it has struck."""

    fault: Fault
    since: float
    strikes: int = 0

    def is_live(self, now: float) -> bool:
        begin = self.since + self.fault.after_s
        over = self.fault.for_s is not None and now >= begin + self.fault.for_s
        spent = self.fault.count is not None and self.strikes >= self.fault.count
        return now >= begin and not over and not spent


class Faults:
    """All armed faults. Randomness is used only if the odds are not certain."""

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
        """Return the fault of this kind that strikes this call, if any, and count it."""
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
        """Return True if a fault of this kind strikes such a call every time. Nothing is counted."""
        return any(
            armed.fault.kind is kind
            and armed.fault.is_permanent
            and armed.fault.matches(call)
            and armed.is_live(self._now())
            for armed in self.armed
        )


def fault_to_json(fault: Fault) -> dict[str, object]:
    """Return the fields that differ from a default fault of its kind."""
    shown: dict[str, object] = _fault_json().dump_python(
        fault, mode="json", by_alias=True, exclude_defaults=True
    )
    return shown


def fault_from_json(values: Mapping[str, object]) -> Fault:
    """Parse one fault. An unknown name is rejected, because a misspelled one would never strike."""
    try:
        return _fault_json().validate_python(values)
    except ValidationError as error:
        problems = [(".".join(map(str, it["loc"])), it["msg"], it["input"]) for it in error.errors()]
        raise ValueError(
            "; ".join(f"{where!r}: {why}, not {got!r}" for where, why, got in problems)
        ) from None


@cache
def _fault_json() -> TypeAdapter[Fault]:
    return TypeAdapter(Fault)


def kinds_to_json() -> dict[str, object]:
    """Return every kind with its meaning, so that users find them without the source."""
    return {
        kind.value: {
            "meaning": rules.meaning,
            "endpoints": [endpoint.value for endpoint in rules.endpoints] or "all",
            "styles": list(rules.styles),
        }
        for kind, rules in FAULT_KIND_SPECS.items()
    }
