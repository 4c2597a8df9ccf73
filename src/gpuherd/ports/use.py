"""What the use cases need to find out whether a machine is in use."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.endings.idleness import AppAnswer, Utilization


class UseMetrics(Protocol):
    """The cloud's own measurements. Every call only reads, costs a call, and may raise `CloudError`."""

    async def samples(
        self, cloud_id: str, begin: datetime, end: datetime, interval: timedelta
    ) -> tuple[Utilization, ...]:
        """Return how busy a machine was, as far as it is known.

        A moment at which one of its GPUs or its CPU was not measured is left out. `RateLimited` when the
        budget of such calls is used up.
        """
        ...


class ActivityProbe(Protocol):
    """Asks an application whether it is in use."""

    async def ask(self, port: PortMapping, path: str) -> AppAnswer:
        """Ask once. Whatever goes wrong is an answer that says nothing, and never an exception."""
        ...
