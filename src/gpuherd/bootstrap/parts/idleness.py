"""Idleness: what finds out whether machines are in use."""

from __future__ import annotations

from datetime import datetime

from gpuherd.bootstrap.parts.shared import Shared
from gpuherd.bootstrap.ports import Ports
from gpuherd.usecases.idleness.brake import IdleBrake
from gpuherd.usecases.idleness.look import LookAtUse
from gpuherd.usecases.idleness.watch import WatchUse


def build_watch_use(ports: Ports, shared: Shared, up_since: datetime) -> WatchUse:
    """Return what watches the use of instances that may end by idleness."""
    stores, clock = ports.stores, ports.clock
    return WatchUse(
        instances=stores.instances,
        jobs=stores.book,
        look=LookAtUse(
            metrics=ports.use_metrics, activity=ports.activity_probe, clock=clock, up_since=up_since
        ),
        brake=IdleBrake(stores.flags, stores.observations, clock),
        account=shared.account,
        event_recorder=shared.event_recorder,
        job_factory=shared.job_factory,
        clock=clock,
    )
