"""Every verb that takes an instance takes its id, the beginning of its id, or its name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.support import Answer, Cli, FakeApi, SeenRequest, details, problem

ONE = "inst_01k9aaaa00000000000000000a"
TWO = "inst_01k9bbbb00000000000000000b"
GONE = "inst_01k9bbbb00000000000000000c"


class Herd:
    """A server that knows three instances, one of them deleted, and answers in pages of one."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = [
            details("ready", id=ONE, name="one"),
            details("ready", id=TWO, name="inst_01k9"),
            details("deleted", id=GONE, name="gone"),
        ]

    def __call__(self, seen: SeenRequest) -> Answer:
        word = seen.path.removeprefix("/api/instances").removeprefix("/").partition("/")[0]
        if not word:
            at = int(dict(seen.query).get("cursor", "0"))
            following = str(at + 1) if at + 1 < len(self.rows) else None
            return Answer({"instances": [self.rows[at]], "total": 3, "nextCursor": following})
        for row in self.rows:
            if word in (row["id"], row["name"]):
                return Answer(row if seen.method == "GET" else {"id": row["id"], "operationId": "op_1"})
        return problem(404, "INSTANCE_NOT_FOUND", detail=f"there is no instance '{word}'")


@pytest.fixture(autouse=True)
def herd(api: FakeApi) -> Herd:
    api.handler = herd = Herd()
    return herd


def test_the_beginning_of_an_id_is_enough(cli: Cli) -> None:
    assert json.loads(cli("show", "inst_01k9a").stdout)["name"] == "one"


def test_a_name_goes_before_the_beginning_of_an_id(cli: Cli) -> None:
    assert json.loads(cli("show", "inst_01k9").stdout)["id"] == TWO


def test_what_is_deleted_is_meant_only_where_nothing_else_is(cli: Cli, herd: Herd) -> None:
    assert json.loads(cli("show", "inst_01k9bbbb").stdout)["id"] == TWO
    herd.rows.remove(herd.rows[1])
    assert json.loads(cli("show", "inst_01k9bbbb").stdout)["id"] == GONE


def test_two_that_begin_so_are_named_and_none_is_taken(cli: Cli, api: FakeApi, herd: Herd) -> None:
    herd.rows[1]["name"] = "two"
    result = cli("rm", "--yes", "inst_01k9")
    error = json.loads(result.stderr)["error"]
    assert (result.exit_code, error["code"]) == (5, "AMBIGUOUS_ID")
    assert [it["id"] for it in error["details"]["candidates"]] == [ONE, TWO]
    assert "DELETE" not in [seen.method for seen in api.seen]


def test_three_characters_are_too_few(cli: Cli, api: FakeApi) -> None:
    result = cli("show", "inst_01x")
    assert result.exit_code == 4
    assert "at least 4 characters" in json.loads(result.stderr)["error"]["detail"]
    assert len(api.seen) == 1


def test_nothing_that_begins_so_is_not_found(cli: Cli) -> None:
    assert cli("show", "inst_zzzz").exit_code == 4


def test_a_word_that_is_no_id_is_never_looked_for_in_the_list(cli: Cli, api: FakeApi) -> None:
    assert cli("show", "01k9a").exit_code == 4
    assert len(api.seen) == 1


@pytest.mark.parametrize("verb", [("start",), ("stop",), ("rm", "--yes"), ("wait",), ("ssh", "--print")])
def test_every_verb_takes_the_beginning_of_an_id(cli: Cli, api: FakeApi, verb: tuple[str, ...]) -> None:
    cli(*verb, "inst_01k9a")
    assert any(ONE in seen.path for seen in api.seen)


def test_a_filter_takes_the_beginning_of_an_id_too(cli: Cli, api: FakeApi) -> None:
    cli("jobs", "--instance", "inst_01k9a")
    assert ("instanceId", ONE) in api.seen[-1].query


def test_a_whole_id_in_a_filter_needs_no_question(cli: Cli, api: FakeApi) -> None:
    cli("jobs", "--instance", ONE)
    assert [seen.path for seen in api.seen] == ["/api/jobs"]
