"""Names for what can be asked of the simulated cloud, and the record of what was asked."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from enum import StrEnum

from gpuherd.simulator.create_request import CreateRequest

LOG_LENGTH = 10_000


class ApiEndpoint(StrEnum):
    """Each call by a short name, the same in faults, counters and logs."""

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
    # Not Novita's: a request to the program on a machine.
    APP = "app"


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as far as faults and logs may know it."""

    endpoint: ApiEndpoint
    name: str = ""
    product_id: str = ""
    cluster_id: str = ""
    machine_id: str = ""
    # What a create asks for, so that it can still be carried out after its reply was lost.
    request: CreateRequest | None = None


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """One line of the log: never a body, so never a secret."""

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
