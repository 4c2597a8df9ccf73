"""A subject: whose machine a span is of. It outlives the instance, whose record goes after a week."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpuherd.domain.costs.span import CostKind


@dataclass(frozen=True)
class CostSubject:
    """An instance with a machine of its, or a machine that no instance has."""

    cloud_id: str
    # Both are None of a machine that is nobody's; the owner is the id of the key that pays.
    instance_id: str | None
    owner: str | None
    created_at: datetime
    lineage: str | None = None
    name: str = ""
    product_name: str = ""
    region: str = ""
    billing_mode: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    # When it was first usable, and since when it is wanted stopped or gone, where that is so.
    usable_at: datetime | None = None
    stop_wanted_at: datetime | None = None
    delete_wanted_at: datetime | None = None

    def end_wanted_at(self, kind: CostKind) -> datetime | None:
        """Return since when this kind of cost is not wanted any more: a stopped machine keeps its disk."""
        if kind is CostKind.DISK:
            return self.delete_wanted_at
        wanted = [it for it in (self.stop_wanted_at, self.delete_wanted_at) if it is not None]
        return min(wanted, default=None)
