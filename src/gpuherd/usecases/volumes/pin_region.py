"""Pin the region of a wish: volumes can be mounted only where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuherd.domain.cloud.offer import Region
from gpuherd.domain.costs.bill import StorageVolume
from gpuherd.domain.errors import CloudUnavailable, FieldProblem, InvalidRequest
from gpuherd.domain.workload.volumes import VolumeMount
from gpuherd.usecases.cloud.catalogue import within_budget
from gpuherd.usecases.volumes.list_all import ListVolumes

# Where it is not known, nothing can be rented: somewhere else they would not be there.
LOOKUP_BUDGET_S = 5.0


@dataclass(frozen=True)
class PinRegion:
    """Asks which volumes there are, and refuses what cannot be mounted together."""

    list_volumes: ListVolumes

    async def __call__(
        self, mounts: Sequence[VolumeMount], asked: Sequence[str], known: Sequence[Region] | None
    ) -> str:
        """Return the code of the region of these volumes; `asked` are the user's own words for regions."""
        volumes = await self._volumes([it.volume_id for it in mounts])
        codes = sorted({it.region for it in volumes})
        if len(codes) > 1:
            raise _invalid(f"they are in different regions ({', '.join(codes)}), so no machine can have them")
        (code,) = codes
        if asked and code not in asked:
            if known is None:
                raise CloudUnavailable(
                    "whether the volumes are where it was asked for is not known; try again"
                )
            if not any(it.code == code and any(map(it.is_called, asked)) for it in known):
                raise _invalid(f"they are in {code}, which is not among the regions that were asked for")
        return code

    async def _volumes(self, wanted: Sequence[str]) -> list[StorageVolume]:
        listed = await within_budget(LOOKUP_BUDGET_S, self.list_volumes())
        found = {it.volume_id: it for it in listed or ()}
        if listed is not None and not found.keys() >= set(wanted):
            # It may be younger than the list that was kept.
            listed = await within_budget(LOOKUP_BUDGET_S, self.list_volumes.fresh())
            found = {it.volume_id: it for it in listed or ()}
        if listed is None:
            raise CloudUnavailable("where the volumes are cannot be asked now; try again")
        if missing := [it for it in wanted if it not in found]:
            raise _invalid(f"there is no volume {', '.join(missing)}")
        return [found[it] for it in wanted]


def _invalid(words: str) -> InvalidRequest:
    return InvalidRequest([FieldProblem("volumes", "INVALID_VOLUMES", f"volumes: {words}")])
