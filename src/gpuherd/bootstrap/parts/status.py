"""How the service and the herd are: health and overview."""

from __future__ import annotations

from gpuherd.bootstrap.parts.shared import Shared
from gpuherd.bootstrap.ports import Ports, Values
from gpuherd.usecases.health import ReadServiceHealth
from gpuherd.usecases.overview import ReadOverview


def build_health(ports: Ports, values: Values, shared: Shared) -> ReadServiceHealth:
    """Return what answers a health check of the service."""
    stores = ports.stores
    return ReadServiceHealth(
        clock=ports.clock,
        observations=stores.observations,
        jobs=stores.book,
        flags=stores.flags,
        breaker_state=ports.breaker_state,
        cloud_error=lambda: shared.observer.error_code,
        account=shared.account,
        vanishing=shared.vanishing,
        poll_interval=values.poll_interval,
    )


def build_overview(ports: Ports, shared: Shared) -> ReadOverview:
    """Return what sums up the herd."""
    stores = ports.stores
    return ReadOverview(
        instances=stores.instances,
        jobs=stores.book,
        flags=stores.flags,
        deliveries=stores.deliveries,
        orphans=stores.orphans,
        breaker_state=ports.breaker_state,
        account=shared.account,
        vanishing=shared.vanishing,
    )
