"""Environment variables of a wish. Every value counts as a secret: it is kept sealed, or named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuherd.domain.access.secret import HIDDEN, Secret

# Carries the tag of the machine beside its name, so nobody else may set it.
TAG_VARIABLE = "GPUHERD_TAG"
# So many the cloud takes; one of them is the tag.
ENVS_MAX = 100
GIVEN_ENVS_MAX = ENVS_MAX - 1
NAME_CHARS_MAX, VALUE_CHARS_MAX = 511, 4095
# So long a value is redacted also in pieces where an error quotes it; a shorter one may be any word.
CREDENTIAL_CHARS = 8

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class GivenEnv:
    """A variable as it was asked for: with its value, or with the name of the secret that holds it."""

    name: str
    value: Secret | None = None
    secret: str = ""


@dataclass(frozen=True)
class EnvVar:
    """A variable as it is remembered: with its value sealed, or with the name of the secret."""

    name: str
    sealed: str = field(default="", repr=False)
    secret: str = ""

    @property
    def shown(self) -> str | dict[str, str]:
        """What anybody may see of its value."""
        return {"secret": self.secret} if self.secret else HIDDEN


@dataclass(frozen=True)
class OpenedEnv:
    """A variable with its value, at the moment of the create call."""

    name: str
    value: Secret
    is_named_secret: bool = False

    @property
    def is_credential(self) -> bool:
        """Whether a piece of the value is enough to be redacted."""
        return self.is_named_secret or len(self.value.reveal()) >= CREDENTIAL_CHARS


def name_problem(name: str) -> str | None:
    """Return what is wrong with the name of a variable; it is not repeated, since it may be a value."""
    if not _NAME.fullmatch(name):
        return "must be letters, digits, _ . or -, and not begin with a digit"
    if len(name) > NAME_CHARS_MAX:
        return f"must not be longer than {NAME_CHARS_MAX} characters"
    # guard: the tag cannot be set by a variable
    if name.upper() == TAG_VARIABLE:
        return f"must not be {TAG_VARIABLE}: gpuherd finds its machines by it"
    return None


def value_problem(value: str) -> str | None:
    """Return what is wrong with the value of a variable."""
    if len(value) > VALUE_CHARS_MAX:
        return f"must not be longer than {VALUE_CHARS_MAX} characters"
    if "\0" in value or _LONE_SURROGATE.search(value):
        return "must be a text without null characters"
    return None


def shown_envs(envs: Sequence[EnvVar]) -> dict[str, str | dict[str, str]]:
    """Return what anybody may see of variables: their names, and which secrets are meant."""
    return {it.name: it.shown for it in envs}
