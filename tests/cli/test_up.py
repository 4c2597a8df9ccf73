"""`gpuherd up`: ask once, follow to the end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.support import DROPPED, Answer, Cli, FakeApi, accepted, details, problem

UP = ("up", "--gpu", "4090", "--template", "t1", "--name", "train-1")
ACCEPTED = Answer(accepted(), 201)
READY = details("ready", cloudInstanceId="c1")


def test_only_what_was_said_is_asked_for(cli: Cli, api: FakeApi) -> None:
    api.script(ACCEPTED, READY)
    assert cli(*UP).exit_code == 0
    create = api.seen[0]
    assert (create.method, create.path) == ("POST", "/api/instances")
    assert create.body == {"name": "train-1", "productName": "4090", "templateId": "t1"}


def test_every_option_reaches_the_server_in_its_own_words(cli: Cli, api: FakeApi) -> None:
    api.script(ACCEPTED, READY)
    result = cli(
        *UP,
        *("--gpu-num", "2", "--disk", "80", "--region", "CN-HK-01", "--region", "AS-SGP-02"),
        *("--max-price", "$0.40", "--billing", "on-demand", "--optimize", "price"),
        *("--label", "team=vision", "--label", "note=a=b", "--webhook-url", "https://example.com/hook"),
        *("--on-failure", "keep", "--idempotency-key", "mine"),
        *("--health-port", "8888", "--health-path", "/health", "--health-timeout", "2m"),
        *("--volume", "v-1:/data", "--volume", "v-2:/models:old"),
    )
    assert result.exit_code == 0
    assert api.seen[0].headers["Idempotency-Key"] == "mine"
    assert api.seen[0].body == {
        "name": "train-1",
        "productName": "4090",
        "templateId": "t1",
        "gpuNum": 2,
        "rootfsSize": 80,
        "regions": ["CN-HK-01", "AS-SGP-02"],
        "maxHourlyPrice": "0.40",
        "billingMode": "onDemand",
        "optimize": "price",
        "labels": {"team": "vision", "note": "a=b"},
        "webhookUrl": "https://example.com/hook",
        "onFailure": "keep",
        "healthCheck": {"targetPort": 8888, "path": "/health", "maxWaitTimeMs": 120_000},
        "volumes": [{"id": "v-1", "mountPath": "/data"}, {"id": "v-2", "mountPath": "/models:old"}],
    }


def test_a_name_is_made_from_the_gpu_where_none_is_given(cli: Cli, api: FakeApi) -> None:
    api.script(ACCEPTED, READY)
    cli("up", "--product", "RTX 4090", "--template", "t1")
    assert api.seen[0].body["name"].startswith("rtx-4090-")


def test_piped_progress_is_on_stderr_and_the_last_state_is_json_on_stdout(cli: Cli, api: FakeApi) -> None:
    starting = details("starting", cloudInstanceId="c1", statusReason="pulling the image")
    api.script(ACCEPTED, details(), details(), starting, starting, READY)
    result = cli(*UP)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == READY
    lines = [line.strip() for line in result.stderr.splitlines()]
    offer = "RTX 4090 24GB · CN-HK-01 · $0.35/h spot"
    assert lines == [
        "0 s  renting  4090",
        f"0 s  renting  {offer}  (about 3 min left)",
        f"2 s  starting  {offer}  pulling the image  (about 3 min left)",
        f"4 s  ready  {offer}",
    ]


def test_the_server_is_asked_to_hold_the_question(cli: Cli, api: FakeApi) -> None:
    api.script(ACCEPTED, READY)
    cli(*UP)
    assert (api.seen[1].path, api.seen[1].query) == (
        "/api/instances/inst_1",
        [("wait", "ready"), ("timeout", "2")],
    )


def test_quiet_says_only_the_id(cli: Cli, api: FakeApi) -> None:
    api.script(ACCEPTED, details(), READY)
    result = cli(*UP, "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "inst_1\n", "")


def test_no_wait_returns_at_once(cli: Cli, api: FakeApi) -> None:
    api.script(ACCEPTED)
    result = cli(*UP, "--no-wait")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["instanceId"] == "inst_1"
    assert len(api.seen) == 1


def test_a_lost_answer_is_asked_for_again_under_the_same_key(cli: Cli, api: FakeApi) -> None:
    api.script(DROPPED, DROPPED, ACCEPTED, READY)
    result = cli(*UP)
    assert result.exit_code == 0
    keys = {seen.headers["Idempotency-Key"] for seen in api.seen[:3]}
    bodies = [seen.body for seen in api.seen[:3]]
    assert len(keys) == 1
    assert bodies[0] == bodies[1] == bodies[2]
    assert "server not reachable, retrying" in result.stderr


def test_two_commands_have_two_keys(cli: Cli, api: FakeApi) -> None:
    api.script(ACCEPTED)
    cli(*UP, "--no-wait")
    cli("up", "--gpu", "h100", "--template", "t1", "--no-wait")
    first, second = (seen.headers["Idempotency-Key"] for seen in api.seen)
    # The same seed gives the same numbers, but a name is drawn first in the second command.
    assert first != second


def test_a_server_that_restarts_during_the_create_is_waited_for(cli: Cli, api: FakeApi) -> None:
    api.script(DROPPED, problem(503, "STORE_UNAVAILABLE"), ACCEPTED, READY)
    cli.clock.at_sleep = {1: api.stop, 3: api.start}
    assert cli(*UP).exit_code == 0


def test_a_create_that_is_never_answered_says_how_to_repeat_it_safely(cli: Cli, api: FakeApi) -> None:
    api.script(DROPPED)
    result = cli(*UP, "--timeout", "5s", "--idempotency-key", "mine")
    assert result.exit_code == 8
    error = json.loads(result.stderr.splitlines()[-1])["error"]
    assert error["code"] == "OUTCOME_UNKNOWN"
    assert "--idempotency-key mine" in error["suggestion"]
    assert cli.clock.passed_s <= 5


def test_a_server_that_is_not_there_is_told_at_once(cli: Cli, api: FakeApi) -> None:
    api.stop()
    result = cli(*UP)
    assert result.exit_code == 8
    assert cli.clock.slept == []
    error = json.loads(result.stderr)["error"]
    assert error["title"] == f"cannot reach the gpuherd server at {api.url}"
    assert "gpuherd serve --simulator" in error["suggestion"]


def test_a_refused_create_is_not_repeated(cli: Cli, api: FakeApi) -> None:
    api.script(problem(503, "CIRCUIT_BREAKER_OPEN", retryAfter=30))
    result = cli(*UP)
    assert result.exit_code == 8
    assert json.loads(result.stderr)["error"]["suggestion"] == "try again in 30 s"
    assert len(api.seen) == 1


def test_an_answer_without_an_id_is_not_followed(cli: Cli, api: FakeApi) -> None:
    api.script(Answer({"hello": "world"}, 201))
    assert cli(*UP).exit_code == 8
    assert len(api.seen) == 1


def test_a_failed_instance_fails_the_command(cli: Cli, api: FakeApi) -> None:
    failed = details(
        "failed",
        statusReason="the image cannot be pulled",
        lastError={"code": "STARTUP_FAILED", "message": "pull failed", "details": {}},
    )
    api.script(ACCEPTED, failed)
    result = cli(*UP)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["status"] == "failed"
    error = json.loads(result.stderr.splitlines()[-1])["error"]
    assert (error["code"], error["detail"]) == ("STARTUP_FAILED", "the image cannot be pulled")
    assert error["suggestion"] == "see why with: gpuherd why train-1"


def test_a_sold_out_instance_has_an_exit_code_of_its_own(cli: Cli, api: FakeApi) -> None:
    regions = [{"region": "CN-HK-01", "offers": [{"productName": "RTX 4090", "reason": "not available"}]}]
    last_error = {"code": "NO_OPTIMAL_PRODUCT_ANY_REGION", "message": "none", "details": {"regions": regions}}
    api.script(ACCEPTED, details("failed", lastError=last_error))
    result = cli(*UP, "--quiet")
    assert result.exit_code == 6
    assert result.stdout == "inst_1\n"
    assert "CN-HK-01  RTX 4090  not available" in result.stderr
    assert "--max-price" in result.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ("--gpu-num", "9"),
        ("--disk", "5"),
        ("--max-price", "cheap"),
        ("--max-price", "0"),
        ("--max-price", "NaN"),
        ("--billing", "free"),
        ("--label", "novalue"),
        ("--label", "=x"),
        ("--timeout", "soon"),
        ("--timeout", "0"),
        ("--idempotency-key", "two words"),
        ("--idempotency-key", ""),
        ("--idempotency-key", "line\nbreak"),
        ("--json", "--quiet"),
        ("--max-pric", "1"),
        ("--volume", "/data"),
        ("--volume", "v-1:"),
        ("--volume", "v-1:/a", "--volume", "v-1:/b"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error_and_nothing_is_asked(
    cli: Cli, api: FakeApi, wrong: tuple[str, ...]
) -> None:
    assert cli(*UP, *wrong).exit_code == 2
    assert api.seen == []


def test_gpu_and_template_are_needed(cli: Cli) -> None:
    assert cli("up", "--gpu", "4090").exit_code == 2
    assert cli("up", "--template", "t").exit_code == 2


def test_a_name_from_the_server_cannot_write_to_the_log_as_it_likes(cli: Cli, api: FakeApi) -> None:
    evil: dict[str, Any] = {"name": "a\x1b[2Jb", "statusReason": "c\rd\ne\x9b", "region": "\u202eHK"}
    api.script(ACCEPTED, details(**evil), details("failed", **evil))
    for mode in ("--json", "--quiet"):
        result = cli(*UP, mode)
        assert not {"\x1b", "\r", "\x9b", "\u202e"} & set(result.stderr + result.stdout)
    assert r"c\rd\ne\x9b" in result.stderr


def test_a_plan_is_rented_by_its_id_alone(cli: Cli, api: FakeApi) -> None:
    api.script(ACCEPTED)
    assert cli("up", "--plan", "plan_7", "--no-wait").exit_code == 0
    assert api.seen[0].body == {"planId": "plan_7"}
    assert api.seen[0].headers["Idempotency-Key"] == "plan_7"


@pytest.mark.parametrize("wrong", [("--gpu", "4090"), ("--name", "x"), ("--lease", "2h"), ("--disk", "80")])
def test_nothing_is_said_beside_a_plan(cli: Cli, api: FakeApi, wrong: tuple[str, str]) -> None:
    assert cli("up", "--plan", "plan_7", *wrong).exit_code == 2
    assert api.seen == []
