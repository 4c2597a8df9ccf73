"""What a person is advised to do about an answer that is a no."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from gpuherd.entrypoints.cli.runtime.errors import problem_report
from tests.entrypoints.cli.support import Cli, FakeApi, problem


def _error(cli: Cli, words: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(cli(*shlex.split(words)).stderr)["error"]
    return told


@pytest.mark.parametrize(
    ("words", "code", "advice"),
    [
        ("show nobody", "INSTANCE_NOT_FOUND", "gpuherd ls"),
        ("budgets rm b1", "BUDGET_NOT_FOUND", "gpuherd budgets ls"),
        ("keys revoke k1", "KEY_NOT_FOUND", "gpuherd keys ls"),
        ("secrets rm s1", "SECRET_NOT_FOUND", "gpuherd secrets ls"),
        ("orphans stop m1", "ORPHAN_NOT_FOUND", "gpuherd orphans"),
        ("jobs show j1", "JOB_NOT_FOUND", "gpuherd jobs"),
        ("webhooks rm w1", "WEBHOOK_ENDPOINT_NOT_FOUND", "gpuherd webhooks ls"),
        ("webhooks replay d1", "DELIVERY_NOT_FOUND", "gpuherd webhooks deliveries"),
        ("templates rm 7 --yes", "TEMPLATE_NOT_FOUND", "gpuherd templates"),
    ],
)
def test_what_is_not_found_leads_to_the_list_of_its_kind(
    cli: Cli, api: FakeApi, words: str, code: str, advice: str
) -> None:
    api.handler = lambda _: problem(404, code)
    error = _error(cli, words)
    assert (error["code"], error["suggestion"]) == (code, f"see what there is with: {advice}")


@pytest.mark.parametrize(
    ("words", "listed", "advice"),
    [
        ("volumes rm data --yes", "volumes", "gpuherd volumes ls"),
        ("prewarm rm p1 --yes", "prewarms", "gpuherd prewarm ls"),
        ("registry rm team --yes", "registryAuths", "gpuherd registry ls"),
    ],
)
def test_what_is_in_no_list_leads_to_that_list(
    cli: Cli, api: FakeApi, words: str, listed: str, advice: str
) -> None:
    api.script({listed: [], "total": 0})
    assert _error(cli, words)["suggestion"] == f"see what there is with: {advice}"


def test_an_address_that_there_is_not_leads_to_no_list() -> None:
    assert problem_report("NOT_FOUND", "Not found", "no route", 404).suggestion == ""
