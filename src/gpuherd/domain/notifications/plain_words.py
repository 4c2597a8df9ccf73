"""What strangers wrote (names, reasons, what the cloud says) as one harmless line."""

from __future__ import annotations

import unicodedata

# Printable by Python's rules, invisible by everybody else's.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_BROKEN = "\ufffd"
_ELLIPSIS = "…"
_ZERO_WIDTH = "\u200b"


def plain_words(value: object, max_chars: int) -> str:
    """Return a text on one line, not too long: no control characters, no bidi overrides, nothing unseen."""
    line = " ".join("".join(map(_visible, "" if value is None else str(value))).split())
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + _ELLIPSIS


def without_mentions(text: str) -> str:
    """Return a text in which neither `@channel` nor an address is a link or a call to anybody."""
    return text.replace("@", f"@{_ZERO_WIDTH}").replace("://", f":{_ZERO_WIDTH}//")


def _visible(char: str) -> str:
    if char.isspace() or unicodedata.category(char) in ("Cc", "Zl", "Zp"):
        return " "
    if char.isprintable() and char not in _INVISIBLE and unicodedata.category(char) != "Cf":
        return char
    # Lone surrogates cannot be encoded; the rest of them has no looks.
    return _BROKEN if unicodedata.category(char) in ("Cs", "Cn", "Co") else ""
