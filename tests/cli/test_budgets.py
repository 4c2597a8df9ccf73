"""`gpuherd budgets`, piped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.support import NOW, Cli, FakeApi, problem

NLP: dict[str, Any] = {
    "id": "bud_1",
    "name": "nlp",
    "scope": {"label": {"team": "nlp"}},
    "amount": "200",
    "period": "month",
    "warnPercent": [50],
    "atLimit": "stop",
    "strict": False,
    "spent": "120.5",
    "hourlyNow": "0.4",
    "resetsAt": None,
    "state": "warned",
    "createdAt": NOW.isoformat(),
}


def test_a_budget_is_made_for_everything_unless_more_is_said(cli: Cli, api: FakeApi) -> None:
    api.script(NLP, NLP, NLP)
    assert json.loads(cli("budgets", "add", "all", "500").stdout)["id"] == "bud_1"
    cli("budgets", "add", "nlp", "200", "--label", "team=nlp", "--period", "week", "--at-limit", "stop")
    cli("budgets", "add", "x", "2", "--key", "adaadaad", "--strict", "--warn", "50,95", "-q")
    everything: dict[str, Any] = {"name": "all", "amount": "500", "period": "month", "scope": {"all": True}}
    assert [it.body for it in api.seen] == [
        everything,
        {
            "name": "nlp",
            "amount": "200",
            "period": "week",
            "scope": {"label": {"team": "nlp"}},
            "atLimit": "stop",
        },
        {
            "name": "x",
            "amount": "2",
            "period": "month",
            "scope": {"key": "adaadaad"},
            "warnPercent": [50, 95],
            "strict": True,
        },
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("add", "x", "1", "--label", "team"),
        ("add", "x", "1", "--label", "a=b", "--key", "k"),
        ("add", "x", "1", "--warn", "half"),
        ("set", "x"),
    ],
)
def test_what_makes_no_sense_is_not_asked_for(cli: Cli, api: FakeApi, words: tuple[str, ...]) -> None:
    assert cli("budgets", *words).exit_code == 2
    assert api.seen == []


def test_only_what_is_said_is_changed(cli: Cli, api: FakeApi) -> None:
    api.script(NLP)
    assert cli("budgets", "set", "nlp", "--amount", "300").exit_code == 0
    (seen,) = api.seen
    assert (seen.method, seen.path, seen.body) == ("PATCH", "/api/budgets/nlp", {"amount": "300"})


def test_they_are_listed_and_removed(cli: Cli, api: FakeApi) -> None:
    api.script({"budgets": [NLP], "total": 1}, {"budgets": [NLP], "total": 1}, {"id": "bud_1"})
    assert json.loads(cli("budgets", "ls").stdout)["budgets"] == [NLP]
    assert cli("budgets", "ls", "-q").stdout == "bud_1\n"
    assert cli("budgets", "rm", "nlp").exit_code == 0
    assert (api.seen[2].method, api.seen[2].path) == ("DELETE", "/api/budgets/nlp")


def test_a_budget_that_holds_no_more_has_the_exit_code_of_limits(cli: Cli, api: FakeApi) -> None:
    api.script(problem(429, "BUDGET_EXHAUSTED", detail="budget 'nlp' is used up"))
    assert cli("budgets", "ls").exit_code == 7
