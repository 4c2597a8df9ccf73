"""`gpuherd jobs`, piped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.entrypoints.cli.support import Cli, FakeApi, details, problem

WHOLE_ID = "inst_01k9z3v7m2q4r8t6w0x5y1a3bc"


def job(**more: Any) -> dict[str, Any]:
    base = {"id": 7, "type": "create_instance", "status": "PENDING", "attempts": 1, "maxAttempts": 3}
    return base | {"instanceId": "inst_1"} | more


def test_the_list_is_what_the_api_says(cli: Cli, api: FakeApi) -> None:
    api.script({"jobs": [job()], "total": 1, "nextCursor": None})
    assert json.loads(cli("jobs").stdout) == {"jobs": [job()], "total": 1, "nextCursor": None}
    assert (api.seen[0].path, api.seen[0].query) == ("/api/jobs", [("limit", "50")])
    assert cli("jobs", "-q").stdout == "7\n"


def test_filters_reach_the_server(cli: Cli, api: FakeApi) -> None:
    api.script({"jobs": [], "total": 0})
    cli("jobs", "--type", "send_webhook", "--status", "failed", "--instance", WHOLE_ID)
    assert dict(api.seen[0].query) == {
        "limit": "50",
        "type": "send_webhook",
        "status": "FAILED",
        "instanceId": WHOLE_ID,
    }


def test_an_instance_may_be_given_by_name(cli: Cli, api: FakeApi) -> None:
    api.script(details(), {"jobs": []})
    cli("jobs", "--instance", "train-1")
    assert api.seen[0].path == "/api/instances/train-1"
    assert ("instanceId", "inst_1") in api.seen[1].query


def test_all_follows_the_cursors(cli: Cli, api: FakeApi) -> None:
    api.script({"jobs": [job()], "nextCursor": "x"}, {"jobs": [job(id=8)], "total": 2})
    assert cli("jobs", "--all", "-q").stdout == "7\n8\n"


def test_one_job(cli: Cli, api: FakeApi) -> None:
    api.script(job())
    assert json.loads(cli("jobs", "show", "7/x").stdout) == job()
    assert [seen.path for seen in api.seen] == ["/api/jobs/7%2Fx"]
    api.script(problem(404, "JOB_NOT_FOUND"))
    assert cli("jobs", "show", "7").exit_code == 4


def test_statistics(cli: Cli, api: FakeApi) -> None:
    stats = {"pending": 1, "total": 3, "byType": {"create_instance": 3}}
    api.script(stats)
    assert json.loads(cli("jobs", "stats").stdout) == stats
    assert [seen.path for seen in api.seen] == ["/api/jobs/stats"]


@pytest.mark.parametrize("argv", [("jobs", "--status", "odd"), ("jobs", "show"), ("jobs", "frobnicate")])
def test_what_makes_no_sense_is_a_usage_error(cli: Cli, api: FakeApi, argv: tuple[str, ...]) -> None:
    assert cli(*argv).exit_code == 2
    assert api.seen == []
