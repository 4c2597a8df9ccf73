"""The headers that a receiver of traces wants, in the form that OpenTelemetry gave them."""

from __future__ import annotations

import re
from urllib.parse import unquote

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")


def otlp_headers(text: str) -> dict[str, str]:
    """Return the headers of `name=value,name=value`; `ValueError`, which tells none, if it is not so."""
    headers = {}
    for pair in filter(None, (it.strip() for it in text.split(","))):
        name, found, value = (it.strip() for it in pair.partition("="))
        value = unquote(value)
        if not found or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError("must be name=value, several with commas between them; other characters as %XX")
        headers[name.lower()] = value
    return headers
