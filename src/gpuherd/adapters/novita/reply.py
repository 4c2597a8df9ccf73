"""One reply of the cloud, read as untrusted input: a JSON object, nothing at all, or garbage."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NoReturn

from gpuherd.adapters.novita.fields import safe_text

EXCERPT_CHARS = 300


@dataclass(frozen=True)
class NovitaReply:
    """What came back. The body stays out of repr: it may hold passwords of machines and registries."""

    status: int
    # None when there was no JSON object, whatever else there was.
    body: dict[str, Any] | None = field(repr=False)
    is_empty: bool = False
    excerpt: str = field(default="", repr=False)
    retry_after_s: float | None = None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_garbage(self) -> bool:
        """Tell whether something came that Novita would not have said."""
        return self.body is None and not self.is_empty


def read_reply(status: int, raw: bytes, retry_after_s: float | None = None) -> NovitaReply:
    """Read a whole reply; whatever cannot be read becomes garbage, never an error."""
    is_empty = raw.strip() in (b"", b"null")
    return NovitaReply(
        status,
        body=None if is_empty else _parse_object(raw),
        is_empty=is_empty,
        # Cut before decoding: an excerpt of a huge page need not cost a huge string.
        excerpt=safe_text(raw[: 4 * EXCERPT_CHARS].decode("utf-8", "replace"), EXCERPT_CHARS),
        retry_after_s=retry_after_s,
    )


def _parse_object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    # Nested deeper than the stack goes, or a number longer than Python reads.
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
