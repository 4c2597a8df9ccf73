"""One reply of the cloud, read as untrusted input: a JSON object, nothing at all, or garbage."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from gpuherd.adapters.novita.call_secrets import NO_SECRETS, TEXT_CHARS_MAX, CallSecrets
from gpuherd.adapters.novita.fields import safe_text

EXCERPT_CHARS = 300
_LIMIT = re.compile(r"rate-?limit|retry-after", re.IGNORECASE)


@dataclass(frozen=True)
class NovitaReply:
    """What came back. The body stays out of repr: it may hold passwords of machines and registries."""

    status: int
    # None when there was no JSON object, whatever else there was.
    body: dict[str, Any] | None = field(repr=False)
    is_empty: bool = False
    # The beginning of what came, for `excerpt`.
    head: bytes = field(default=b"", repr=False)
    retry_after_s: float | None = None
    # The headers that tell of a limit of calls, by their names in lower case.
    limit_headers: Mapping[str, str] = field(default_factory=dict, compare=False)
    # What the call involved, and so what no text of this reply may be shown with.
    secrets: CallSecrets = field(default=NO_SECRETS, repr=False, compare=False)

    @property
    def excerpt(self) -> str:
        """A little of what came, for people."""
        return safe_text(self.secrets.redact(self.head.decode("utf-8", "replace")), EXCERPT_CHARS)

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_garbage(self) -> bool:
        """Tell whether something came that Novita would not have said."""
        return self.body is None and not self.is_empty


def read_reply(
    status: int,
    raw: bytes,
    retry_after_s: float | None = None,
    secrets: CallSecrets = NO_SECRETS,
    headers: Mapping[str, str] | None = None,
) -> NovitaReply:
    """Read a whole reply; whatever cannot be read becomes garbage, never an error."""
    is_empty = raw.strip() in (b"", b"null")
    return NovitaReply(
        status,
        body=None if is_empty else _parse_object(raw),
        is_empty=is_empty,
        head=raw[:TEXT_CHARS_MAX],
        retry_after_s=retry_after_s,
        limit_headers=_limit_headers(headers or {}),
        secrets=secrets,
    )


def _limit_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): safe_text(value, 80) for name, value in headers.items() if _LIMIT.search(name)}


def _parse_object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    # Nested deeper than the stack goes, or a number longer than Python reads.
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
