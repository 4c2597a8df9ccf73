"""`gpuherd ls` and `gpuherd show`, piped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.support import Answer, Cli, FakeApi, SeenRequest, details, problem


def page(*names: str, cursor: str | None = None, total: int = 3) -> dict[str, Any]:
    rows = [details("ready", name=name, id=f"inst_{name}") for name in names]
    return {"instances": rows, "total": total, "nextCursor": cursor}


def test_a_piped_list_is_what_the_api_says(cli: Cli, api: FakeApi) -> None:
    api.script(page("a", "b", cursor="c1"))
    result = cli("ls")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == page("a", "b", cursor="c1")
    assert api.seen[0].query == [("limit", "50")]


def test_filters_reach_the_server(cli: Cli, api: FakeApi) -> None:
    api.script(page())
    cli("ls", "--status", "failed", "--label", "team=a&b", "--name", "n", "--limit", "7")
    assert dict(api.seen[0].query) == {"limit": "7", "label": "team=a&b", "status": "failed", "name": "n"}


@pytest.mark.parametrize(
    "wrong",
    [
        ("--status", "happy"),
        ("--limit", "0"),
        ("--limit", "101"),
        ("--label", "x"),
        ("--label", "a=1", "--label", "b=2"),
    ],
)
def test_filters_that_make_no_sense_are_usage_errors(cli: Cli, api: FakeApi, wrong: tuple[str, ...]) -> None:
    assert cli("ls", *wrong).exit_code == 2
    assert api.seen == []


def test_all_follows_the_cursors(cli: Cli, api: FakeApi) -> None:
    api.script(page("a", cursor="c&1"), page("b", cursor="c2"), page("c"))
    listed = json.loads(cli("ls", "--all").stdout)
    assert [row["name"] for row in listed["instances"]] == ["a", "b", "c"]
    assert (listed["total"], listed["nextCursor"]) == (3, None)
    assert [dict(seen.query).get("cursor") for seen in api.seen] == [None, "c&1", "c2"]


def test_a_cursor_that_comes_again_does_not_lead_in_circles(cli: Cli, api: FakeApi) -> None:
    api.script(page("a", cursor="again"))
    result = cli("ls", "--all")
    assert result.exit_code == 8
    assert "leads back to the same page" in result.stderr
    assert len(api.seen) == 2


def test_quiet_lists_ids_only(cli: Cli, api: FakeApi) -> None:
    api.script(page("a", "b"))
    assert cli("ls", "-q").stdout == "inst_a\ninst_b\n"


def test_show_gives_everything_that_the_api_says(cli: Cli, api: FakeApi) -> None:
    api.script(details(extra={"new": 1}))
    assert json.loads(cli("show", "train-1").stdout) == details(extra={"new": 1})
    assert cli("show", "train-1", "-q").stdout == "inst_1\n"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("two words", "two%20words"),
        ("100%", "100%25"),
        ("a?b#c", "a%3Fb%23c"),
        ("..", "%2E%2E"),
        ("训练", "%E8%AE%AD%E7%BB%83"),
    ],
)
def test_nothing_in_a_name_is_taken_as_part_of_the_address(
    cli: Cli, api: FakeApi, name: str, path: str
) -> None:
    api.script(details())
    cli("show", name)
    assert api.seen[0].path == f"/api/instances/{path}"


@pytest.mark.parametrize("name", ["a/b", "comprehensive"])
def test_a_name_that_no_route_can_carry_is_found_through_the_list(cli: Cli, api: FakeApi, name: str) -> None:
    api.script(page(name, name + "2"), details())
    assert cli("show", name).exit_code == 0
    assert (api.seen[0].path, dict(api.seen[0].query)["name"]) == ("/api/instances", name)
    assert api.seen[1].path == "/api/instances/" + f"inst_{name}".replace("/", "%2F")


def test_such_a_name_may_be_unknown_or_ambiguous(cli: Cli, api: FakeApi) -> None:
    api.script(page("other"))
    assert cli("show", "a/b").exit_code == 4
    api.script(page("a/b", "a/b"))
    result = cli("show", "a/b")
    assert result.exit_code == 5
    assert json.loads(result.stderr)["error"]["code"] == "AMBIGUOUS_NAME"


@pytest.mark.parametrize("command", ["show", "wait"])
def test_an_empty_name_is_a_usage_error(cli: Cli, api: FakeApi, command: str) -> None:
    assert cli(command, " ").exit_code == 2
    assert api.seen == []


@pytest.mark.parametrize(
    ("answer", "exit_code", "suggestion"),
    [
        (problem(400, "VALIDATION_ERROR"), 2, None),
        (problem(401, "UNAUTHORIZED"), 3, "GPUHERD_API_KEY"),
        (problem(403, "FORBIDDEN"), 3, "scope"),
        (problem(404, "INSTANCE_NOT_FOUND"), 4, "gpuherd ls"),
        (problem(409, "CONFLICT"), 5, None),
        (problem(409, "AMBIGUOUS_NAME"), 5, "id"),
        (problem(409, "NO_OPTIMAL_PRODUCT_ANY_REGION"), 6, "--region"),
        (problem(413, "TOO_LARGE"), 2, None),
        (problem(422, "IDEMPOTENCY_MISMATCH"), 5, "--idempotency-key"),
        (problem(429, "RATE_LIMIT_EXCEEDED"), 1, None),
        (problem(500, "INTERNAL_ERROR"), 1, None),
        (problem(503, "STORE_UNAVAILABLE"), 8, None),
        (Answer(b"<html>", 404), 8, "GPUHERD_URL"),
        (Answer(b"<html>", 200), 8, "GPUHERD_URL"),
        (Answer(b"", 401), 3, None),
    ],
)
def test_each_kind_of_problem_has_its_exit_code_and_advice(
    cli: Cli, api: FakeApi, answer: Answer, exit_code: int, suggestion: str | None
) -> None:
    api.script(answer)
    result = cli("show", "x")
    assert (result.exit_code, result.stdout) == (exit_code, "")
    error = json.loads(result.stderr)["error"]
    assert error["exitCode"] == exit_code
    assert suggestion is None or suggestion in error["suggestion"]


def test_an_error_as_json_keeps_all_that_the_problem_says(cli: Cli, api: FakeApi) -> None:
    errors = [{"field": "gpuNum", "code": "INVALID_GPU_NUM", "message": "1 to 8"}]
    api.script(problem(400, "INVALID_GPU_NUM", detail="bad", errors=errors, requestId="r1", details={"a": 1}))
    assert json.loads(cli("show", "x").stderr)["error"] == {
        "code": "INVALID_GPU_NUM",
        "title": "no",
        "detail": "bad",
        "status": 400,
        "errors": errors,
        "details": {"a": 1},
        "requestId": "r1",
        "exitCode": 2,
    }


def test_the_key_is_in_no_output(cli: Cli, api: FakeApi) -> None:
    api.script(problem(401, "UNAUTHORIZED"))
    result = cli("show", "x")
    assert cli.key is not None
    assert cli.key not in result.output


def test_a_broken_configuration_is_told_with_its_own_exit_code(cli: Cli) -> None:
    cli.key = "two words"
    result = cli("ls")
    assert result.exit_code == 78
    error = json.loads(result.stderr)["error"]
    assert "GPUHERD_API_KEY" in error["detail"]
    assert "two words" not in result.output


def test_the_server_is_asked_nothing_for_help(cli: Cli, api: FakeApi) -> None:
    def never(_: SeenRequest) -> Answer:
        raise AssertionError

    api.handler = never
    assert cli("ls", "--help").exit_code == 0
    assert api.seen == []
