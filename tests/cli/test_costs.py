"""`gpuherd costs`: from when to when; and what a spreadsheet gets adds up, with nothing left out unsaid."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import Any

import pytest

from tests.cli.support import Cli, FakeApi

COSTS: dict[str, Any] = {
    "from": "2026-04-01T00:00:00Z",
    "to": "2026-05-01T00:00:00Z",
    "groupBy": "label:team",
    "total": "10.000000001",
    "uncertainty": "0.5",
    "hourlyNow": "2.25",
    "byKind": {"gpu": "10.000000001", "disk": "0", "volume": "0"},
    "waste": {"unbound": "0", "failedBoots": "0", "overlap": "0", "afterEnd": "0"},
    "groupsLeftOut": 0,
    "billed": None,
}


def group(value: str | None, total: str) -> dict[str, Any]:
    return {
        "value": value,
        "total": total,
        "uncertainty": "0.1",
        "hourlyNow": "1",
        "instances": 2,
        "name": None,
    }


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_an_empty_label_is_not_the_same_as_none(cli: Cli, api: FakeApi) -> None:
    api.script({**COSTS, "groups": [group("", "6"), group(None, "3"), group("nlp", "1.000000001")]})
    found = cli("costs", "--by", "label:team", "--csv")
    assert [(it["value"], it["kind"]) for it in rows_of(found.stdout)] == [
        ("", "value"),
        ("", "none"),
        ("nlp", "value"),
    ]
    assert found.stderr == ""


def test_what_the_server_leaves_out_is_one_row_and_is_told_beside_it(cli: Cli, api: FakeApi) -> None:
    api.script({**COSTS, "groups": [group("nlp", "6"), group("vision", "3")], "groupsLeftOut": 1234})
    found = cli("costs", "--by", "label:team", "--csv")
    rows = rows_of(found.stdout)
    assert (rows[-1]["kind"], rows[-1]["instances"], len(rows)) == ("rest", "", 3)
    for column in ("total", "uncertainty", "hourlyNow"):
        assert sum(Decimal(it[column]) for it in rows) == Decimal(COSTS[column]), column
    assert "the dearest 2 are listed; 1234 more are one row, of kind rest" in found.stderr


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--since", "2026-12-01"), "--since"),
        (("--since", "2026-05-01T12:00:00Z"), "--since"),
        (("--since", "2026-04-02", "--until", "2026-04-01"), "--until"),
        (("--since", "1h", "--until", "2h"), "--until"),
    ],
)
def test_a_period_without_any_time_in_it_is_refused_in_the_words_that_were_typed(
    cli: Cli, api: FakeApi, words: tuple[str, ...], option: str
) -> None:
    refused = cli("costs", *words)
    assert refused.exit_code == 2
    assert f"Invalid value for {option}" in refused.stderr
    assert "from" not in refused.stderr and "--since" in refused.stderr
    assert api.seen == []


def test_a_period_may_lie_ahead_as_a_whole(cli: Cli, api: FakeApi) -> None:
    api.script({"total": "0"})
    cli("costs", "--since", "2026-12-01", "--until", "2026-12-02")
    assert dict(api.seen[0].query) == {"from": "2026-12-01", "to": "2026-12-02", "groupBy": "instance"}
