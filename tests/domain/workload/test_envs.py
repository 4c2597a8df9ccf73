"""Names and values of variables: what the cloud takes, and what gpuherd keeps for itself."""

from __future__ import annotations

import pytest

from gpuherd.domain.instance.launch_spec import (
    EnvVar,
    OpenedEnv,
    name_problem,
    shown_envs,
)
from gpuherd.domain.secret import Secret


def test_these_are_names(subtests: pytest.Subtests) -> None:
    for name in ["A", "_x", "HF_TOKEN", "a.b-c", "A" * 511]:
        with subtests.test(name=name):
            assert name_problem(name) is None


def test_these_are_no_names_and_are_not_repeated(subtests: pytest.Subtests) -> None:
    for name in ["", "1A", "A=B", "A B", "Ä", "A\n", "A" * 512]:
        with subtests.test(name=name):
            assert name_problem(name)
            assert not name or name not in str(name_problem(name))


@pytest.mark.parametrize("name", ["GPUHERD_TAG", "gpuherd_tag"])
def test_the_tag_cannot_be_set(name: str) -> None:
    assert "gpuherd finds its machines by it" in str(name_problem(name))


def test_nothing_is_shown_but_names_and_which_secret_is_meant() -> None:
    envs = [EnvVar("A", "v1.sealed"), EnvVar("B", secret="hf")]
    assert shown_envs(envs) == {"A": "***", "B": {"secret": "hf"}}
    assert "v1.sealed" not in repr(envs)


def test_a_long_value_and_every_named_secret_is_redacted_in_pieces() -> None:
    assert not OpenedEnv("A", Secret("short")).is_credential
    assert OpenedEnv("A", Secret("long enough")).is_credential
    assert OpenedEnv("A", Secret("short"), is_named_secret=True).is_credential
