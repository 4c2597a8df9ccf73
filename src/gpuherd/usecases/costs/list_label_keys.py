"""List by which labels the costs of a period can be divided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuherd.clock import Clock
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.costs.period import Period
from gpuherd.ports.costs import Costs


@dataclass(frozen=True)
class ListLabelKeys:
    """Those of ended instances are among them: what they have cost is in the report, too."""

    costs: Costs
    clock: Clock

    async def __call__(self, period: Period, caller: Caller) -> Sequence[str]:
        """Return the keys in use, those of the most instances first."""
        return await self.costs.label_keys(period, self.clock.now(), caller.owner)
