"""`gpuherd orphans`, piped and on a terminal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.support import Cli, FakeApi, details, problem


def orphan(**more: Any) -> dict[str, Any]:
    base = {
        "cloudId": "m-1",
        "name": "somebody-elses",
        "verdict": "foreign",
        "reason": "it carries no tag of gpuherd",
        "status": "running",
        "hourlyPrice": "0.35",
        "costSoFar": "1.2",
        "ageSeconds": 12_000,
    }
    return base | more


def ledger(*orphans: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "orphans": list(orphans),
        "total": len(orphans),
        "hourlyPrice": "0.35",
        "braked": None,
    } | more


def test_the_list_is_what_the_api_says(cli: Cli, api: FakeApi) -> None:
    api.script(ledger(orphan()))
    assert json.loads(cli("orphans").stdout) == ledger(orphan())
    assert cli("orphans", "-q").stdout == "m-1\n"
    cli("orphans", "--verdict", "surplus")
    assert [(seen.path, seen.query) for seen in api.seen] == [
        ("/api/orphans", []),
        ("/api/orphans", []),
        ("/api/orphans", [("verdict", "surplus")]),
    ]


def test_one_is_adopted(cli: Cli, api: FakeApi) -> None:
    api.script(details("running"))
    assert json.loads(cli("orphans", "adopt", "m/1").stdout) == details("running")
    assert [(seen.method, seen.path) for seen in api.seen] == [("POST", "/api/orphans/m%2F1/adopt")]
    assert cli("orphans", "adopt", "m-1", "-q").stdout == "inst_1\n"


def test_all_that_this_database_has_lost_are_adopted_and_no_others(cli: Cli, api: FakeApi) -> None:
    lost = [orphan(cloudId=it, verdict="unrecorded") for it in ("m-1", "m-2")]
    api.script(ledger(*lost, orphan(cloudId="m-3")), details("running"))
    result = json.loads(cli("orphans", "adopt", "--all").stdout)
    assert result["total"] == 2
    assert [seen.path for seen in api.seen] == [
        "/api/orphans",
        "/api/orphans/m-1/adopt",
        "/api/orphans/m-2/adopt",
    ]


@pytest.mark.parametrize("argv", [(), ("m-1", "--all")])
def test_to_adopt_is_one_machine_or_all(cli: Cli, api: FakeApi, argv: tuple[str, ...]) -> None:
    assert cli("orphans", "adopt", *argv).exit_code == 2
    assert api.seen == []


@pytest.mark.parametrize(("order", "options"), [("stop", ()), ("delete", ("--yes",))])
def test_an_order_is_given(cli: Cli, api: FakeApi, order: str, options: tuple[str, ...]) -> None:
    api.script(orphan(order=order))
    assert json.loads(cli("orphans", order, "m-1", *options).stdout) == orphan(order=order)
    assert [(seen.method, seen.path) for seen in api.seen] == [("POST", f"/api/orphans/m-1/{order}")]


@pytest.mark.parametrize("argv", [("delete", "m-1"), ("resume",)])
def test_where_nobody_can_be_asked_nothing_goes_without_yes(
    cli: Cli, api: FakeApi, argv: tuple[str, ...]
) -> None:
    assert cli("orphans", *argv).exit_code == 2
    assert api.seen == []


def test_the_collector_is_resumed(cli: Cli, api: FakeApi) -> None:
    answer = {"braked": None, "released": [orphan()]}
    api.script(answer)
    assert json.loads(cli("orphans", "resume", "--yes").stdout) == answer
    assert api.seen[0].path == "/api/orphans/resume"


def test_a_refusal_has_its_exit_code(cli: Cli, api: FakeApi) -> None:
    api.script(problem(404, "ORPHAN_NOT_FOUND"))
    assert cli("orphans", "adopt", "m-1").exit_code == 4
