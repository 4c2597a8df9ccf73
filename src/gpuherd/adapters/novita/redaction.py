"""Redacts the secrets of a call to Novita from the reply.

Errors of clouds and registries quote their input, in the encodings that it passed through.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote, quote_plus

from gpuherd.domain.secret import HIDDEN, Secret

# Shorter values are no secrets, and redacting them would hide ordinary words.
CREDENTIAL_CHARS_MIN = 4


VALUE_CHARS_MIN = 6


# No sentence for people is longer. The rest is not shown.
TEXT_CHARS_MAX = 4096


WITHHELD = "(not shown: it may quote a registry password that gpuherd does not know)"
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|PWD|AUTH|CRED|PRIVATE", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Return True if an environment variable of this name holds a credential."""
    return _SECRET_NAME.search(name) is not None


@dataclass(frozen=True)
class CallSecrets:
    """The secrets that no text about a call may contain."""

    credentials: tuple[Secret, ...] = ()
    # Values that may be harmless; short ones are not redacted.
    values: tuple[Secret, ...] = ()
    # An unknown credential is involved, so no text can be shown.
    has_unknown: bool = False

    def with_envs(self, envs: Iterable[tuple[str, str]]) -> CallSecrets:
        """Return these, with the values of environment variables."""
        pairs = list(envs)
        credentials = tuple(Secret(value) for name, value in pairs if is_secret_name(name))
        values = tuple(Secret(value) for name, value in pairs if not is_secret_name(name))
        return self.plus(CallSecrets(credentials, values))

    def plus(self, other: CallSecrets) -> CallSecrets:
        """Return the union of both."""
        return CallSecrets(
            self.credentials + other.credentials,
            self.values + other.values,
            self.has_unknown or other.has_unknown,
        )

    def redact(self, text: str) -> str:
        """Return the text without the secrets; nothing of it if one of them is unknown."""
        if self.has_unknown:
            return WITHHELD if text else ""
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        # Cut last: half a secret at the cut would not be found.
        return text[:TEXT_CHARS_MAX]

    @cached_property
    def _forms(self) -> list[str]:
        """Return each secret in all its forms, the longest first, because one may contain another."""
        found = _all_forms(self.credentials, CREDENTIAL_CHARS_MIN) | _all_forms(self.values, VALUE_CHARS_MIN)
        return sorted(found, key=len, reverse=True)


NO_SECRETS = CallSecrets()


def _all_forms(secrets: Iterable[Secret], chars_min: int) -> set[str]:
    texts = {secret.reveal() for secret in secrets}
    # A value that was already masked is no secret.
    return {form for text in texts if len(text) >= chars_min and text.strip("*") for form in _forms_of(text)}


def _forms_of(text: str) -> set[str]:
    """Return the value as it is, and as URLs, JSON, HTML and base64 write it."""
    raw = text.encode("utf-8", "surrogatepass")
    urls = {quote(raw, safe=""), quote(raw), quote_plus(raw)}
    jsons = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    return {text, *urls, *jsons, html.escape(text), *_base64_forms(raw)}


def _base64_forms(raw: bytes) -> Iterable[str]:
    """Yield the base64 parts that do not depend on the place in a longer text ("user:password")."""
    for shift, shared_chars in ((0, 0), (1, 2), (2, 3)):
        whole = base64.b64encode(bytes(shift) + raw).decode("ascii")
        ends_evenly = (shift + len(raw)) % 3 == 0
        form = whole[shared_chars:] if ends_evenly else whole.rstrip("=")[shared_chars:-1]
        if len(form) >= CREDENTIAL_CHARS_MIN:
            yield form
