"""Judges a list of machines: whether what it does not show may be believed to be gone."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.domain.cloud.machine import Listing
from gpuherd.domain.cloud.observation import SettlingPolicy, Witness, judge_witness
from gpuherd.domain.errors import CloudError, MachineGone
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.observations import Observations

WITNESSES_MAX = 20
# So many of them are asked for one by one when a list shows none.
WITNESS_CHECKS_MAX = 3


@dataclass(frozen=True)
class JudgeList:
    """Holds a list against machines that were there for long: witnesses, which an honest list shows."""

    cloud: Cloud
    observations: Observations
    settling: SettlingPolicy

    async def __call__(self, listing: Listing) -> Witness:
        """Tell what a list is worth; one that contradicts our witnesses is checked by asking for those."""
        # Read after the list was made: a witness that we learn of later cannot be held against it.
        witnesses = await self.observations.witnesses(
            listing.started_at - self.settling.witness_age, WITNESSES_MAX
        )
        worth = judge_witness(witnesses, (machine.cloud_id for machine in listing.machines))
        if worth is Witness.MISSING and all(
            [await self._is_gone(it) for it in list(witnesses)[:WITNESS_CHECKS_MAX]]
        ):
            # They really are gone, so the list may be honest; but nobody vouches for it any more.
            return Witness.NONE
        return worth

    async def _is_gone(self, cloud_id: str) -> bool:
        try:
            await self.cloud.get_machine(cloud_id)
        except MachineGone:
            return True
        except CloudError:
            return False
        return False
