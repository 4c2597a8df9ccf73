"""A span: one piece of work, and the trace that it is a part of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

Attribute = str | int | float | bool


class SpanKind(Enum):
    """Which side of a call it is, if any."""

    INTERNAL = "internal"
    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True, slots=True)
class Trace:
    """All that is done about one subject: a rental, an operation, a delivery.

    Its id follows from the id of the subject, so any process may add to it, at any time.
    """

    # None: nothing else will ever be a part of it.
    subject: str | None = None
    # The rental that it comes from, where it is not the rental itself.
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class EndedSpan:
    """One piece of work. No word in it was written by a user or by the cloud."""

    name: str
    begun: datetime
    ended: datetime
    # None: a child of whatever is open where it is recorded.
    trace: Trace | None = None
    # The one that all others of its trace hang on.
    is_root: bool = False
    # There is one of this name in a trace: told twice, by two processes, it is still the same.
    is_single: bool = False
    kind: SpanKind = SpanKind.INTERNAL
    failed: bool = False
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
