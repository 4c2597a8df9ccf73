"""Instances, and what happened to them, also as events of the stream."""

from gpuherd.contract.event import Event, EventPage, LiveEvent
from gpuherd.contract.instance import (
    ConnectionDetails,
    EndpointHealth,
    Failure,
    HealthReport,
    Instance,
    LeaseChanged,
    PortMapping,
)
from gpuherd.contract.job import Job, JobStats
from gpuherd.contract.operation import Accepted, Operation, OperationPhase
from gpuherd.contract.why import Attempt

__all__ = [
    "Accepted",
    "Attempt",
    "ConnectionDetails",
    "EndpointHealth",
    "Event",
    "EventPage",
    "Failure",
    "HealthReport",
    "Instance",
    "Job",
    "JobStats",
    "LeaseChanged",
    "LiveEvent",
    "Operation",
    "OperationPhase",
    "PortMapping",
]
