"""How long after its notice a spot machine is taken back, by what was seen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from gpuherd.domain.cloud.spot_reclaim import RECLAIM_NOTICE, usual_notice, with_notice
from gpuherd.ports.flags import Flags

# The latest lengths in seconds. Two that are written at once may lose one, which is not worth a table.
NOTICE_LENGTHS = "reclaim_notices_s"


@dataclass(frozen=True)
class NoticeLengths:
    """Remembers how long notices were, for all machines."""

    flags: Flags
    # By what the cloud promises, or the operator has set.
    promised: timedelta = RECLAIM_NOTICE

    async def usual(self) -> timedelta:
        """Return how long after its notice a machine can be counted on."""
        return usual_notice(await self._known(), self.promised)

    async def note_loss(self, length: timedelta) -> None:
        """Remember that a machine was taken back so long after its notice."""
        await self._put(length)

    async def note_unharmed(self) -> None:
        """Remember a notice whose machine was given back before its loss: it would have come as promised.

        Else only the early ones would be seen of those that are replaced in time.
        """
        await self._put(self.promised)

    async def _known(self) -> Sequence[float]:
        known: Sequence[float] = json.loads(await self.flags.get(NOTICE_LENGTHS) or "[]")
        return known

    async def _put(self, length: timedelta) -> None:
        known = await self._known()
        after = with_notice(known, length)
        if after != known:
            await self.flags.put(NOTICE_LENGTHS, json.dumps([round(it) for it in after]))
