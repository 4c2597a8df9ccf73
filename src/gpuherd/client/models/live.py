"""Events as they come in a stream of everything that happens."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.client.models.instance import Event


@dataclass(frozen=True, kw_only=True)
class LiveEvent(Event):
    """One fact, with its place among all. Without an instance where it concerns the account as a whole."""

    id: int
    instance_id: str | None = None
    name: str | None = None
