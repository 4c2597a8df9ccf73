"""A place in the capacity line as the world sees it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gpuherd.contract import instance as shown
from gpuherd.domain.instance.capacity_line import OfferRest, PlaceInLine
from gpuherd.domain.instance.instance import Instance


def describe_wait(
    it: Instance, until: datetime | None, place: PlaceInLine | None
) -> shown.InstanceWait | None:
    """Return what an instance waits for outside of gpuherd, if it does."""
    waiting = it.waiting_for
    if waiting is None:
        return None
    return shown.InstanceWait(
        what=waiting.what.value, since=waiting.since, until=until, **describe_place(place)
    )


def describe_place(place: PlaceInLine | None) -> dict[str, Any]:
    """Return the fields that tell of a place in line, all of them empty for one who has none."""
    return {
        "position": None if place is None else place.ahead + 1,
        "ahead": None if place is None else place.ahead,
        "next_try_at": None if place is None else place.next_try_at,
        "last_answer": None if place is None else _describe_answer(place.last_refusal),
    }


def _describe_answer(rest: OfferRest | None) -> shown.Answer | None:
    if rest is None:
        return None
    product_id, region, mode = rest.key
    paid = "" if mode is None else f" ({mode.value})"
    return shown.Answer(at=rest.refused_at, offer=f"{product_id} in {region}{paid}", message=rest.message)
