"""`gpuherd start`, `stop` and `rm`: give the order once, follow what becomes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.support import (
    DROPPED,
    Answer,
    Cli,
    FakeApi,
    SeenRequest,
    details,
    operation,
    problem,
)

EXITED = details("exited", goal="stopped")
READY = details("ready", cloudInstanceId="c1")
OF_VERB = {"start": "starting", "restart": "starting", "stop": "stopping", "rm": "deleting"}
YES = {"start": (), "restart": (), "stop": (), "rm": ("--yes",)}


def accepted(status: str, goal: str = "running") -> Answer:
    body: dict[str, Any] = {
        "operationId": "op_1",
        "instanceId": "inst_1",
        "name": "train-1",
        "status": status,
        "goal": goal,
        "message": "asked to",
    }
    return Answer(body, 202)


def of(seen: list[SeenRequest]) -> list[tuple[str, str]]:
    return [(it.method, it.path) for it in seen]


@pytest.mark.parametrize(
    ("verb", "order"),
    [
        ("start", ("POST", "/api/instances/inst_1/start")),
        ("restart", ("POST", "/api/instances/inst_1/restart")),
        ("stop", ("POST", "/api/instances/inst_1/stop")),
        ("rm", ("DELETE", "/api/instances/inst_1")),
    ],
)
def test_the_order_is_given_once_and_by_id(cli: Cli, api: FakeApi, verb: str, order: tuple[str, str]) -> None:
    answer = accepted(OF_VERB[verb])
    api.script(EXITED, answer)
    result = cli(verb, "train-1", *YES[verb])
    assert result.exit_code == 0
    assert of(api.seen) == [("GET", "/api/instances/train-1"), order]
    assert json.loads(result.stdout) == answer.body


def test_a_start_says_only_what_was_said(cli: Cli, api: FakeApi) -> None:
    api.script(EXITED, accepted("starting"))
    cli("start", "train-1")
    assert api.seen[-1].body == {}


def test_a_start_takes_a_health_check_and_a_webhook(cli: Cli, api: FakeApi) -> None:
    api.script(EXITED, accepted("starting"))
    hook = "https://example.com/hook"
    words = ("--health-port", "8888", "--health-path", "/up", "--health-timeout", "90", "--webhook-url", hook)
    assert cli("start", "train-1", *words).exit_code == 0
    assert api.seen[-1].body == {
        "healthCheck": {"targetPort": 8888, "path": "/up", "maxWaitTimeMs": 90_000},
        "webhookUrl": hook,
    }


@pytest.mark.parametrize("verb", ["start", "restart", "stop", "rm"])
def test_quiet_says_only_the_id(cli: Cli, api: FakeApi, verb: str) -> None:
    api.script(EXITED, accepted(OF_VERB[verb]))
    assert cli(verb, "train-1", "--quiet", *YES[verb]).stdout == "inst_1\n"


def test_the_phases_of_a_start_are_followed_with_their_times(cli: Cli, api: FakeApi) -> None:
    api.script(
        EXITED,
        accepted("starting"),
        details("starting"),
        operation("start", "running", "requested", "starting"),
        details("health_checking"),
        operation("start", "running", "requested", "starting", "running", "healthCheckStarted"),
        details("health_checking"),
        operation(
            *("start", "succeeded", "requested", "starting", "running"),
            *("healthCheckStarted", "healthCheckCompleted", "ready"),
        ),
        READY,
    )
    result = cli("start", "train-1", "--wait")
    assert result.exit_code == 0
    # The details are asked for again, because these came before the operation's end.
    assert json.loads(result.stdout) == READY
    assert [" ".join(line.split()[:3]) for line in result.stderr.splitlines()] == [
        "0 s requested",
        "10 s starting",
        "20 s running",
        "30 s health",
        "40 s healthy",
        "50 s ready",
    ]


@pytest.mark.parametrize(("verb", "end"), [("stop", "exited"), ("rm", "deleted")])
def test_a_stop_and_a_delete_are_followed_to_their_end(cli: Cli, api: FakeApi, verb: str, end: str) -> None:
    kind = "delete" if verb == "rm" else verb
    last = details(end, goal=end)
    api.script(
        READY,
        accepted(OF_VERB[verb]),
        # Still usable, still of the old goal: the operation knows better.
        READY,
        operation(kind, "running", "requested", OF_VERB[verb]),
        last,
        operation(kind, "succeeded", "requested", OF_VERB[verb], end),
        last,
    )
    result = cli(verb, "train-1", "--wait", *YES[verb])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == last
    assert ("wait", end) in api.seen[2].query
    assert f"20 s  {end}" in result.stderr


@pytest.mark.parametrize(
    ("code", "exit_code", "advice"),
    [
        ("RESOURCE_CONSTRAINTS", 6, "try again later"),
        ("NETWORK_ERROR", 1, "gpuherd why train-1"),
        ("HEALTH_CHECK_FAILED", 1, "gpuherd why train-1"),
    ],
)
def test_a_start_that_fails_fails_the_command(
    cli: Cli, api: FakeApi, code: str, exit_code: int, advice: str
) -> None:
    error = {"code": code, "message": "the cloud said no", "details": {}}
    failed = operation("start", "failed", "requested", "failed", error=error)
    api.script(EXITED, accepted("starting"), EXITED, failed, EXITED)
    result = cli("start", "train-1", "--wait")
    assert result.exit_code == exit_code
    assert json.loads(result.stdout) == EXITED
    told = json.loads(result.stderr.splitlines()[-1])["error"]
    assert (told["code"], told["title"]) == (code, "the start of train-1 failed")
    assert told["detail"] == "the cloud said no"
    assert advice in told["suggestion"]


def test_an_order_that_somebody_overrules_fails_the_command(cli: Cli, api: FakeApi) -> None:
    overruled = operation("start", "superseded", "requested", "superseded")
    leaving = details("deleting", goal="deleted", lastError={"code": "OLD", "message": "an old story"})
    api.script(EXITED, accepted("starting"), leaving, overruled, leaving)
    result = cli("start", "train-1", "--wait")
    assert result.exit_code == 1
    told = json.loads(result.stderr.splitlines()[-1])["error"]
    assert told["code"] == "OPERATION_SUPERSEDED"
    assert "superseded by a later order" in told["title"]
    assert "old story" not in result.stderr


def test_a_restart_of_the_server_is_waited_out(cli: Cli, api: FakeApi) -> None:
    done = operation("stop", "succeeded", "requested", "exited")
    api.script(
        READY, accepted("stopping"), DROPPED, EXITED, problem(503, "STORE_UNAVAILABLE"), EXITED, done, EXITED
    )
    assert cli("stop", "train-1", "--wait").exit_code == 0


def test_patience_ends_and_says_how_to_go_on(cli: Cli, api: FakeApi) -> None:
    def answer(seen: SeenRequest) -> Answer:
        if seen.method == "POST":
            return accepted("stopping")
        return Answer(operation("stop", "running") if "operations" in seen.path else details("stopping"))

    api.handler = answer
    result = cli("stop", "train-1", "--wait", "--timeout", "5")
    assert result.exit_code == 124
    suggestion = json.loads(result.stderr.splitlines()[-1])["error"]["suggestion"]
    assert suggestion.endswith("gpuherd wait train-1 --for exited")


@pytest.mark.parametrize("verb", ["start", "stop", "rm"])
def test_an_order_without_an_answer_may_have_been_obeyed_and_is_not_repeated(
    cli: Cli, api: FakeApi, verb: str
) -> None:
    api.script(EXITED, DROPPED)
    result = cli(verb, "train-1", *YES[verb])
    assert result.exit_code == 8
    told = json.loads(result.stderr.splitlines()[-1])["error"]
    assert told["code"] == "OUTCOME_UNKNOWN"
    assert "gpuherd show train-1" in told["suggestion"]
    # aiohttp itself may say a DELETE twice; to delete twice is to delete once.
    assert len([it for it in api.seen if it.method == "POST"]) <= 1


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("STARTUP_OPERATION_IN_PROGRESS", "gpuherd wait"),
        ("INSTANCE_NOT_STOPPABLE", "gpuherd rm"),
        ("INSTANCE_NOT_RESTARTABLE", "gpuherd start"),
    ],
)
def test_a_refused_order_is_a_conflict_with_advice(cli: Cli, api: FakeApi, code: str, advice: str) -> None:
    api.script(READY, problem(409, code))
    result = cli("start", "train-1", "--wait")
    assert result.exit_code == 5
    assert advice in json.loads(result.stderr.splitlines()[-1])["error"]["suggestion"]


@pytest.mark.parametrize("verb", ["start", "stop", "rm"])
def test_what_is_not_there_gets_no_order(cli: Cli, api: FakeApi, verb: str) -> None:
    api.script(problem(404, "INSTANCE_NOT_FOUND"))
    assert cli(verb, "train-1", *YES[verb]).exit_code == 4
    assert len(api.seen) == 1


def test_an_answer_of_somebody_else_is_not_followed(cli: Cli, api: FakeApi) -> None:
    api.script(EXITED, {"hello": "world"})
    assert cli("start", "train-1", "--wait").exit_code == 8


def test_without_a_terminal_nothing_is_deleted_unless_it_was_said(cli: Cli, api: FakeApi) -> None:
    api.script(READY, accepted("deleting"))
    result = cli("rm", "train-1")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert api.seen == []


def test_a_replacement_is_followed_until_the_heir_has_taken_over(cli: Cli, api: FakeApi) -> None:
    heir = details("ready", instanceId="inst_2", replaces="inst_1")
    retired = details("deleting", goal="deleted", replacedBy="inst_2")
    api.script(
        READY,
        accepted("ready"),
        READY,
        operation("replace", "running", "requested"),
        retired,
        operation("replace", "succeeded", "requested"),
        retired,
        heir,
    )
    result = cli("replace", "train-1", "--wait")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == heir
    assert of(api.seen)[:2] == [("GET", "/api/instances/train-1"), ("POST", "/api/instances/inst_1/replace")]
    assert of(api.seen)[-1] == ("GET", "/api/instances/inst_2")


def test_a_replacement_that_failed_is_told(cli: Cli, api: FakeApi) -> None:
    api.script(READY, accepted("ready"), READY, operation("replace", "failed", "requested"), READY)
    assert cli("replace", "train-1", "--wait").exit_code == 1
