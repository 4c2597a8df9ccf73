"""What the use cases need to ask the user's program whether it answers."""

from __future__ import annotations

from typing import Protocol

from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.instance.health import EndpointHealth
from gpuherd.domain.instance.health_check import HealthCheck


class Prober(Protocol):
    """Looks at one port of a machine from outside, as the program's users would."""

    async def probe(self, port: PortMapping, check: HealthCheck) -> EndpointHealth:
        """Look once, for at most `check.timeout_ms`.

        Whatever the target, its address or the network does is a result and never an exception; nothing that
        the target wrote is in it. Where too many looks are under way, none is made (`not_asked`): nobody
        waits for long.
        """
        ...
