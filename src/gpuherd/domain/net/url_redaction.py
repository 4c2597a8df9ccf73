"""URLs as they may be shown: what stands behind the question mark is often a secret."""

from __future__ import annotations

import re
from typing import Any

HIDDEN_QUERY = "?***"
_URL_WITH_QUERY = re.compile(r"(?P<kept>[a-z][a-z0-9+.-]*://[^?#\s]*)[?#]\S*", re.IGNORECASE | re.ASCII)


def redact_query(url: str) -> str:
    """Return a URL with its query hidden."""
    kept, mark, _ = url.partition("?")
    return f"{kept}{HIDDEN_QUERY}" if mark else url


def redact_urls(value: Any) -> Any:
    """Return JSON with the query of every URL in it hidden."""
    match value:
        case str():
            return _URL_WITH_QUERY.sub(lambda found: found["kept"] + HIDDEN_QUERY, value)
        case dict():
            return {key: redact_urls(inner) for key, inner in value.items()}
        case list():
            return [redact_urls(inner) for inner in value]
        case _:
            return value
