"""Names and values of variables: what the cloud takes, and what gpuherd keeps for itself."""

from __future__ import annotations

from gpuherd.domain.instance.launch_spec import (
    EnvVar,
    OpenedEnv,
    shown_envs,
)
from gpuherd.domain.secret import Secret


def test_nothing_is_shown_but_names_and_which_secret_is_meant() -> None:
    envs = [EnvVar("A", "v1.sealed"), EnvVar("B", secret="hf")]
    assert shown_envs(envs) == {"A": "***", "B": {"secret": "hf"}}
    assert "v1.sealed" not in repr(envs)


def test_a_long_value_and_every_named_secret_is_redacted_in_pieces() -> None:
    assert not OpenedEnv("A", Secret("short")).is_credential
    assert OpenedEnv("A", Secret("long enough")).is_credential
    assert OpenedEnv("A", Secret("short"), is_named_secret=True).is_credential
