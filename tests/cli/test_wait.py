"""`gpuherd wait`: go on whatever the server does, until it is usable, over, or too late."""

from __future__ import annotations

import json

import pytest

from tests.cli.support import Answer, Cli, FakeApi, SeenRequest, details, operation, problem

READY = details("ready", cloudInstanceId="c1")


def test_it_follows_by_id_whatever_name_was_given(cli: Cli, api: FakeApi) -> None:
    api.script(details(), READY)
    result = cli("wait", "train-1")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == READY
    assert [seen.path for seen in api.seen] == ["/api/instances/train-1", "/api/instances/inst_1"]


def test_what_is_ready_already_is_not_waited_for(cli: Cli, api: FakeApi) -> None:
    api.script(READY)
    assert cli("wait", "train-1").exit_code == 0
    assert len(api.seen) == 1


def test_a_server_that_does_not_hold_the_question_is_asked_once_a_second(cli: Cli, api: FakeApi) -> None:
    api.script(details(), details(), details(), READY)
    cli("wait", "train-1")
    assert cli.clock.slept == [1.0, 1.0]


def test_a_server_that_holds_the_question_is_asked_again_at_once(cli: Cli, api: FakeApi) -> None:
    def held(_: SeenRequest) -> Answer:
        cli.clock.passed_s += 2
        return Answer(details(), headers={"X-Wait-Timed-Out": "true"})

    api.script(details(), held, held, READY)
    cli("wait", "train-1")
    assert sum(cli.clock.slept) == 0


def test_a_restart_of_the_server_is_waited_out(cli: Cli, api: FakeApi) -> None:
    api.script(details(), details(), READY)
    cli.clock.at_sleep = {1: api.stop, 4: api.start}
    result = cli("wait", "train-1")
    assert result.exit_code == 0
    assert result.stderr.count("server not reachable, retrying (connection refused)") == 1


@pytest.mark.parametrize(
    "trouble", [problem(503, "STORE_UNAVAILABLE"), problem(429, "SLOW"), Answer(b"<html>", 502)]
)
def test_a_server_that_cannot_say_is_asked_again(cli: Cli, api: FakeApi, trouble: Answer) -> None:
    api.script(details(), trouble, trouble, READY)
    result = cli("wait", "train-1")
    assert result.exit_code == 0
    assert "server not reachable, retrying" in result.stderr


def test_a_wish_to_be_left_alone_for_a_while_is_respected_within_reason(cli: Cli, api: FakeApi) -> None:
    busy = [problem(429, "SLOW", retryAfter=after) for after in (7, 9999)]
    api.script(details(), *busy, READY)
    cli("wait", "train-1")
    assert cli.clock.slept == [7.0, 30.0]


@pytest.mark.parametrize(("status", "exit_code"), [(401, 3), (403, 3), (404, 4)])
def test_an_answer_that_will_not_change_ends_the_waiting(
    cli: Cli, api: FakeApi, status: int, exit_code: int
) -> None:
    api.script(details(), problem(status, "NO"))
    assert cli("wait", "train-1").exit_code == exit_code


def test_patience_ends_at_the_timeout_and_says_how_to_go_on(cli: Cli, api: FakeApi) -> None:
    api.script(details("starting"))
    result = cli("wait", "train-1", "--timeout", "10")
    assert result.exit_code == 124
    assert cli.clock.passed_s == 10
    assert json.loads(result.stdout)["status"] == "starting"
    error = json.loads(result.stderr.splitlines()[-1])["error"]
    assert (error["code"], error["detail"]) == ("WAIT_TIMED_OUT", "it is starting")
    assert error["suggestion"].endswith("gpuherd wait train-1")


def test_a_server_that_stays_away_is_a_timeout_too(cli: Cli, api: FakeApi) -> None:
    api.script(details())
    cli.clock.at_sleep = {1: api.stop}
    api.handler = lambda seen: Answer(details())
    result = cli("wait", "train-1", "--timeout", "1m")
    assert result.exit_code == 124
    assert json.loads(result.stderr.splitlines()[-1])["error"]["detail"] == "the server was not reachable"


def test_a_server_that_never_was_there_is_told_at_once(cli: Cli, api: FakeApi) -> None:
    api.stop()
    assert cli("wait", "train-1").exit_code == 8
    assert cli.clock.slept == []


@pytest.mark.parametrize(
    ("status", "goal"),
    [("deleted", "deleted"), ("exited", "stopped"), ("exited", "running"), ("failed", "running")],
)
def test_what_is_over_is_not_waited_for(cli: Cli, api: FakeApi, status: str, goal: str) -> None:
    api.script(details(status, goal=goal))
    result = cli("wait", "train-1")
    assert result.exit_code == 1
    assert f"train-1 is {status}" in result.stderr


def test_what_is_exited_is_waited_for_while_a_start_is_under_way(cli: Cli, api: FakeApi) -> None:
    exited = details("exited", operationId="op_1")
    under_way = operation("start", "running", "requested")
    api.script(exited, under_way, exited, under_way, READY, operation("start", "succeeded", "ready"), READY)
    result = cli("wait", "train-1")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == READY
    assert api.seen[1].path == "/api/operations/op_1"


@pytest.mark.parametrize(
    ("kind", "state"),
    [("start", "failed"), ("start", "superseded"), ("start", "succeeded"), ("stop", "running")],
)
def test_what_is_exited_and_not_being_started_is_not_waited_for(
    cli: Cli, api: FakeApi, kind: str, state: str
) -> None:
    old_error = {"code": "RESOURCE_CONSTRAINTS", "message": "no GPU was free", "details": {}}
    api.script(details("exited", operationId="op_1", lastError=old_error), operation(kind, state))
    result = cli("wait", "train-1")
    assert result.exit_code == 1
    error = json.loads(result.stderr.splitlines()[-1])["error"]
    assert error["code"] == "INSTANCE_EXITED"
    assert error["suggestion"] == "start it with: gpuherd start train-1"
    assert len(api.seen) == 2


def test_an_instance_that_exits_while_it_is_waited_for_ends_the_waiting(cli: Cli, api: FakeApi) -> None:
    api.script(details("starting"), details("exited", operationId="op_1"), operation("start", "failed"))
    assert cli("wait", "train-1").exit_code == 1


@pytest.mark.parametrize("what", ["exited", "deleted"])
def test_other_ends_can_be_waited_for(cli: Cli, api: FakeApi, what: str) -> None:
    api.script(READY, details("stopping", goal="stopped"), details(what, goal="stopped"))
    result = cli("wait", "train-1", "--for", what)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["status"] == what
    assert ("wait", what) in api.seen[1].query
    assert [line.split()[2] for line in result.stderr.splitlines()] == ["ready", "stopping", what]


@pytest.mark.parametrize(
    ("what", "status", "goal"),
    [
        ("exited", "failed", "running"),
        ("exited", "deleting", "deleted"),
        ("exited", "running", "deleted"),
        ("deleted", "failed", "running"),
    ],
)
def test_an_end_that_cannot_come_is_not_waited_for(
    cli: Cli, api: FakeApi, what: str, status: str, goal: str
) -> None:
    api.script(details(status, goal=goal))
    assert cli("wait", "train-1", "--for", what).exit_code == 1
    assert len(api.seen) == 1


def test_a_failed_instance_that_is_being_deleted_is_waited_for(cli: Cli, api: FakeApi) -> None:
    api.script(details("failed", goal="deleted"), details("deleted", goal="deleted"))
    assert cli("wait", "train-1", "--for", "deleted").exit_code == 0


@pytest.mark.parametrize(
    ("what", "again"),
    [("exited", "gpuherd wait train-1 --for exited"), ("deleted", "gpuherd wait inst_1 --for deleted")],
)
def test_going_on_means_waiting_for_the_same(cli: Cli, api: FakeApi, what: str, again: str) -> None:
    api.script(READY)
    result = cli("wait", "train-1", "--for", what, "--timeout", "3")
    assert result.exit_code == 124
    error = json.loads(result.stderr.splitlines()[-1])["error"]
    assert error["title"] == f"not {what} in time"
    assert error["suggestion"].endswith(again)


@pytest.mark.parametrize("name", ["two words; rm -rf", "-x", "naïve", "a\x1bb"])
def test_the_command_to_go_on_is_safe_to_paste(cli: Cli, api: FakeApi, name: str) -> None:
    api.script(details(name=name))
    result = cli("wait", "inst_1", "--timeout", "1")
    assert json.loads(result.stderr.splitlines()[-1])["error"]["suggestion"].endswith("gpuherd wait inst_1")


def test_a_stale_answer_is_marked(cli: Cli, api: FakeApi) -> None:
    api.script(details(stale=True), READY)
    assert "the cloud cannot be asked now" in cli("wait", "train-1").stderr
