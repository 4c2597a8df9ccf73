"""Prewarm tasks as people read them, and what the fields of their form mean to the API."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuherd.domain.cloud.prewarm import Prewarm, PrewarmState
from gpuherd.entrypoints.durations import format_duration
from gpuherd.entrypoints.web.forms import Form
from gpuherd.entrypoints.web.views.formatting import BAD, GOOD, IDLE, MOVING
from gpuherd.entrypoints.web.views.typed_values import typed_list

_LOOKS = {
    PrewarmState.PENDING: MOVING,
    PrewarmState.RUNNING: MOVING,
    PrewarmState.SUCCEEDED: GOOD,
    PrewarmState.FAILED: BAD,
}


@dataclass(frozen=True)
class PrewarmRow:
    """One task on the page."""

    id: str
    image: str
    region: str
    state: str
    look: str
    # Each name once: a name is that of several products.
    products: tuple[str, ...]
    size: str
    note: str
    reasons: tuple[str, ...]
    created_at: datetime | None
    took: str


def prewarm_row(task: Prewarm) -> PrewarmRow:
    """Return how one task is shown."""
    return PrewarmRow(
        id=task.prewarm_id,
        image=task.image,
        region=task.region,
        state=task.state.value,
        look=_LOOKS.get(task.state, IDLE),
        products=_unique(it.product_name or it.product_id for it in task.products),
        size="" if task.size_bytes is None else f"{task.size_bytes / 1e9:.1f} GB",
        note=task.note,
        reasons=task.reasons,
        created_at=task.created_at,
        took=_took(task.created_at, task.completed_at),
    )


def prewarm_body(form: Form) -> dict[str, Any]:
    """Return the task as the API takes it; what was left empty is not said at all."""
    body: dict[str, Any] = {name: form.text(name) for name in ("imageUrl", "region")}
    body |= {name: said for name in ("registryAuthId", "note") if (said := form.text(name))}
    if products := typed_list(form.text("products")):
        body["products"] = products
    return body


def _unique(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


def _took(began: datetime | None, ended: datetime | None) -> str:
    # Both are the cloud's words, which need not agree.
    if began is None or ended is None or ended < began:
        return ""
    return format_duration((ended - began).total_seconds())
