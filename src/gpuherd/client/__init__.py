"""The Python client: `Gpuherd` waits for each answer, `AsyncGpuherd` is awaited; both have the same verbs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpuherd.client.errors import (
    ApiError,
    BadConfiguration,
    Conflict,
    ConnectionFailed,
    FieldError,
    Forbidden,
    GpuherdError,
    InstanceFailed,
    InvalidRequest,
    NoCapacity,
    NotFound,
    NotReleased,
    SecretLost,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnexpectedReply,
    WaitTimedOut,
    WebhookInvalid,
)
from gpuherd.client.models.access import (
    ApiKey,
    AuditEntry,
    Delivery,
    NewKey,
    NewSecret,
    OwnKey,
    SecretName,
    SecretRemoved,
    SecretsRotated,
    WebhookEndpoint,
    WebhookSecret,
    WebhookTest,
)
from gpuherd.client.models.account import (
    CloudTrust,
    Comprehensive,
    Creates,
    Health,
    Orphan,
    Orphans,
    Product,
    Region,
    RegistryAuth,
    Sync,
    Template,
    Volume,
    WebhookEvent,
)
from gpuherd.client.models.costs import (
    Balance,
    Bill,
    BillLine,
    Budget,
    BudgetScope,
    CostGroup,
    Costs,
    Leftover,
    Leftovers,
)
from gpuherd.client.models.instance import (
    Accepted,
    Attempt,
    Event,
    EventPage,
    Failure,
    Instance,
    Job,
    JobStats,
    LeaseChanged,
    LiveEvent,
    Operation,
    PortMapping,
)
from gpuherd.client.models.plan import HeldPlan, Plan, PlannedOffer, PlanReason, RefusedOffer
from gpuherd.client.models.why import (
    Considered,
    LineageMember,
    RankedOffer,
    Sentence,
    StatusPhase,
    Waiting,
    Why,
)
from gpuherd.client.paging import Items, Page
from gpuherd.client.resources.images import TemplateFields
from gpuherd.client.sync_client import Gpuherd
from gpuherd.client.webhook import verify_webhook
from gpuherd.client.wish import Activity, AutoStop, HealthCheck, Lease, Wish

if TYPE_CHECKING:
    from gpuherd.client.async_client import AsyncGpuherd
else:

    def __getattr__(name: str) -> Any:
        # aiohttp takes longer to load than everything else here, and only the asynchronous client needs it.
        if name == "AsyncGpuherd":
            return import_module("gpuherd.client.async_client").AsyncGpuherd
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Accepted",
    "Activity",
    "ApiError",
    "ApiKey",
    "AsyncGpuherd",
    "Attempt",
    "AuditEntry",
    "AutoStop",
    "BadConfiguration",
    "Balance",
    "Bill",
    "BillLine",
    "Budget",
    "BudgetScope",
    "CloudTrust",
    "Comprehensive",
    "Conflict",
    "ConnectionFailed",
    "Considered",
    "CostGroup",
    "Costs",
    "Creates",
    "Delivery",
    "Event",
    "EventPage",
    "Failure",
    "FieldError",
    "Forbidden",
    "Gpuherd",
    "GpuherdError",
    "Health",
    "HealthCheck",
    "HeldPlan",
    "Instance",
    "InstanceFailed",
    "InvalidRequest",
    "Items",
    "Job",
    "JobStats",
    "Lease",
    "LeaseChanged",
    "Leftover",
    "Leftovers",
    "LineageMember",
    "LiveEvent",
    "NewKey",
    "NewSecret",
    "NoCapacity",
    "NotFound",
    "NotReleased",
    "Operation",
    "Orphan",
    "Orphans",
    "OwnKey",
    "Page",
    "Plan",
    "PlanReason",
    "PlannedOffer",
    "PortMapping",
    "Product",
    "RankedOffer",
    "RefusedOffer",
    "Region",
    "RegistryAuth",
    "SecretLost",
    "SecretName",
    "SecretRemoved",
    "SecretsRotated",
    "Sentence",
    "StatusPhase",
    "Sync",
    "Template",
    "TemplateFields",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "UnexpectedReply",
    "Volume",
    "WaitTimedOut",
    "Waiting",
    "WebhookEndpoint",
    "WebhookEvent",
    "WebhookInvalid",
    "WebhookSecret",
    "WebhookTest",
    "Why",
    "Wish",
    "verify_webhook",
]
