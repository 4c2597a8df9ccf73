"""`--quiet` means the same everywhere: one word, or nothing at all."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.support import Cli, FakeApi


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("webhooks", "add", "https://example.com"), "whsec_x\n"),
        (("webhooks", "rotate", "ep_1"), "whsec_x\n"),
        (("webhooks", "rm", "ep_1"), "ep_1\n"),
        (("webhooks", "enable", "ep_1"), "ep_1\n"),
        (("keys", "revoke", "adaadaad"), "adaadaad\n"),
        (("budgets", "rm", "nlp"), "ep_1\n"),
    ],
)
def test_quiet_gives_the_one_word_that_a_script_needs(
    cli: Cli, api: FakeApi, argv: tuple[str, ...], said: str
) -> None:
    api.script({"id": "ep_1", "secret": "whsec_x"})
    result = cli(*argv, "-q")
    assert (result.stdout, result.stderr, result.exit_code) == (said, "", 0)


@pytest.mark.parametrize(
    ("argv", "answer", "exit_code"),
    [
        (("webhooks", "test", "https://example.com"), {"id": "msg_1", "accepted": True}, 0),
        (("webhooks", "test", "https://example.com"), {"id": "msg_1", "accepted": False}, 1),
        (("audit", "verify"), {"entries": []}, 0),
        (("audit", "verify"), {"entries": [{"n": 2}]}, 1),
    ],
)
def test_quiet_leaves_it_to_the_exit_code(
    cli: Cli, api: FakeApi, argv: tuple[str, ...], answer: dict[str, Any], exit_code: int
) -> None:
    api.script(answer)
    result = cli(*argv, "-q")
    assert (result.stdout, result.stderr, result.exit_code) == ("", "", exit_code)
