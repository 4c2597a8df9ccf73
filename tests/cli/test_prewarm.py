"""`gpuherd prewarm`: a list with its quota, one more that may be waited for, one less."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.support import Cli, FakeApi, problem

TASK: dict[str, Any] = {"id": "p1", "imageUrl": "a:1", "region": "CN-HK-01", "state": "pending"}
QUOTA = {"used": 1, "limit": 5, "perImageGb": 100}
CREATE = ("prewarm", "create", "a:1", "--region", "CN-HK-01")


def listing(*tasks: dict[str, Any]) -> dict[str, Any]:
    return {"prewarms": list(tasks), "total": len(tasks), "quota": QUOTA}


def test_a_task_is_made_and_listed_with_the_quota(cli: Cli, api: FakeApi) -> None:
    api.script(TASK, listing(TASK))
    said = ("--product", "4090", "--product", "L40S", "--registry-auth", "x", "--note", "n", "--quiet")
    assert cli(*CREATE, *said).stdout == "p1\n"
    assert api.seen[0].body == {
        "imageUrl": "a:1",
        "region": "CN-HK-01",
        "products": ["4090", "L40S"],
        "registryAuthId": "x",
        "note": "n",
    }
    assert json.loads(cli("prewarm", "ls", "--state", "pending").stdout) == listing(TASK)
    assert api.seen[1].query == [("state", "pending")]
    assert cli("prewarm", "ls", "--quiet").stdout == "p1\n"


def test_it_is_waited_for_until_it_is_there(cli: Cli, api: FakeApi) -> None:
    done = {**TASK, "state": "succeeded", "sizeBytes": 8 * 10**9}
    api.script(TASK, listing(TASK), listing({**TASK, "state": "running"}), listing(done))
    assert json.loads(cli(*CREATE, "--wait").stdout) == done
    assert cli.clock.slept == [5.0, 5.0]


def test_a_failure_and_a_timeout_have_their_exit_codes(cli: Cli, api: FakeApi) -> None:
    api.script(TASK, listing({**TASK, "state": "failed", "reasons": ["access \x1b[31mdenied"]}))
    failed = cli(*CREATE, "--wait")
    told = json.loads(failed.stderr)["error"]
    assert (failed.exit_code, told["code"], told["details"]) == (1, "PREWARM_FAILED", {"id": "p1"})
    assert "\x1b" not in failed.stderr
    api.script(TASK, listing(TASK))
    late = cli(*CREATE, "--wait", "--timeout", "20s")
    assert (late.exit_code, json.loads(late.stderr)["error"]["code"]) == (124, "WAIT_TIMED_OUT")
    api.script(problem(409, "PREWARM_QUOTA_EXCEEDED", details={"used": 5, "limit": 5}))
    full = cli(*CREATE, "--wait")
    assert full.exit_code == 5
    assert json.loads(full.stderr)["error"]["details"] == {"used": 5, "limit": 5}


def test_one_is_removed_by_its_id_or_image_and_only_if_one_is_meant(cli: Cli, api: FakeApi) -> None:
    gone = {"id": "p1", "removed": True}
    for word in ("p1", "a:1"):
        api.script(listing(TASK), gone)
        assert json.loads(cli("prewarm", "rm", word, "--yes").stdout) == gone
        assert (api.seen[-1].method, api.seen[-1].path) == ("DELETE", "/api/prewarms/p1")
    api.script(listing(TASK, {**TASK, "id": "p2"}))
    assert cli("prewarm", "rm", "a:1", "--yes").exit_code == 5
    assert cli("prewarm", "rm", "other", "--yes").exit_code == 4
    assert cli("prewarm", "rm", "p1").exit_code == 2
