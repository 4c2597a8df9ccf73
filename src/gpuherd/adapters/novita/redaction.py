"""The secrets that a call to Novita involves, redacted from whatever text comes back from it.

Errors of clouds and registries quote what they were given: whole, cut off, and in the encodings of whoever
passed them on.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote, quote_plus

from gpuherd.domain.secret import HIDDEN, Secret

# Shorter ones are no secrets, and to look for them would redact half of the language.
CREDENTIAL_CHARS_MIN = 4


VALUE_CHARS_MIN = 6


# Of a credential such a piece is enough, so that half of one is redacted too: half of it, in these bounds.
PIECE_CHARS_MIN, PIECE_CHARS_MAX = 4, 8


# No sentence for people is longer; what comes after is not looked at, and not shown.
TEXT_CHARS_MAX = 4096


WITHHELD = "(not shown: it may quote a registry password that gpuherd does not know)"
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|PWD|AUTH|CRED|PRIVATE", re.IGNORECASE)
_ESCAPE = re.compile(r"%[0-9A-F]{2}")


def is_secret_name(name: str) -> bool:
    """Tell whether an environment variable of this name holds a credential."""
    return _SECRET_NAME.search(name) is not None


@dataclass(frozen=True)
class CallSecrets:
    """What must not be found in any text that a call gives rise to."""

    # Redacted in whole and in pieces.
    credentials: tuple[Secret, ...] = ()
    # Values that may be harmless: redacted as a whole only.
    values: tuple[Secret, ...] = ()
    # A credential is involved that is not known here, so nothing of the text can be shown.
    has_unknown: bool = False

    def with_envs(self, envs: Iterable[tuple[str, str]]) -> CallSecrets:
        """Return these, and the values of environment variables."""
        pairs = list(envs)
        credentials = tuple(Secret(value) for name, value in pairs if is_secret_name(name))
        values = tuple(Secret(value) for name, value in pairs if not is_secret_name(name))
        return self.plus(CallSecrets(credentials, values))

    def plus(self, other: CallSecrets) -> CallSecrets:
        """Return both."""
        return CallSecrets(
            self.credentials + other.credentials,
            self.values + other.values,
            self.has_unknown or other.has_unknown,
        )

    def redact(self, text: str) -> str:
        """Return the text without any of the secrets, or without anything where one of them is unknown."""
        if self.has_unknown:
            return WITHHELD if text else ""
        return self._redactor.redact(text[:TEXT_CHARS_MAX])

    @cached_property
    def _redactor(self) -> _Redactor:
        # Made when it is needed, which is seldom: nearly all calls go well.
        return _Redactor(self)


NO_SECRETS = CallSecrets()


class _Redactor:
    def __init__(self, secrets: CallSecrets):
        self._pieces: defaultdict[int, set[str]] = defaultdict(set)
        for form in _all_forms(secrets.credentials, CREDENTIAL_CHARS_MIN):
            size = min(len(form), PIECE_CHARS_MAX, max(PIECE_CHARS_MIN, len(form) // 2))
            self._pieces[size].update(form[at : at + size] for at in range(len(form) - size + 1))
        values = sorted(_all_forms(secrets.values, VALUE_CHARS_MIN), key=len, reverse=True)
        self._values = re.compile("|".join(map(re.escape, values))) if values else None

    def redact(self, text: str) -> str:
        covered = bytearray(len(text))
        for size, pieces in self._pieces.items():
            for at in range(len(text) - size + 1):
                if text[at : at + size] in pieces:
                    covered[at : at + size] = b"\x01" * size
        for found in self._values.finditer(text) if self._values else ():
            covered[found.start() : found.end()] = b"\x01" * (found.end() - found.start())
        return "".join(HIDDEN if run[0] else text[at:end] for at, end, run in _runs(covered))


def _runs(covered: bytearray) -> Iterable[tuple[int, int, bytes]]:
    """Yield the stretches of equal marks: where each begins and ends, and its marks."""
    return ((it.start(), it.end(), it[0]) for it in re.finditer(rb"\x00+|\x01+", bytes(covered)))


def _all_forms(secrets: Iterable[Secret], chars_min: int) -> set[str]:
    texts = {secret.reveal() for secret in secrets}
    return {
        form
        for text in texts
        # A value that was masked before we got it is none.
        if len(text) >= chars_min and text.strip("*")
        for form in _forms(text)
        if len(form) >= chars_min
    }


def _forms(text: str) -> set[str]:
    """Return a secret as others may write it."""
    raw = text.encode("utf-8", "surrogatepass")
    quoted = {quote(raw, safe=""), quote(raw), quote_plus(raw)}
    escaped = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    return {
        text,
        *quoted,
        *(_ESCAPE.sub(lambda it: it[0].lower(), one) for one in quoted),
        *escaped,
        # A message that was JSON itself.
        *(json.dumps(one)[1:-1] for one in escaped),
        html.escape(text),
        raw.hex(),
        *_base64_forms(raw),
    }


def _base64_forms(raw: bytes) -> Iterable[str]:
    """Yield what stays the same of it in base64, wherever it stands in a longer text ("user:password")."""
    for shift, shared_chars in ((0, 0), (1, 2), (2, 3)):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            whole = encode(bytes(shift) + raw).decode("ascii")
            ends_evenly = (shift + len(raw)) % 3 == 0
            yield whole[shared_chars:] if ends_evenly else whole.rstrip("=")[shared_chars:-1]
