"""`gpuherd registry`: a password comes in through the pipe, and is never printed or an argument."""

from __future__ import annotations

import json

from tests.entrypoints.cli.support import Cli, FakeApi, problem

CANARY = "canary-of-a-registry"
TEAM = {"id": "a1", "name": "team", "username": "robot"}
LIST = {"registryAuths": [TEAM], "total": 1}
CREATE = ("registry", "create", "team", "--username", "robot")


def test_a_password_is_read_from_the_pipe_and_not_printed(cli: Cli, api: FakeApi) -> None:
    api.script(TEAM, LIST)
    made = cli(*CREATE, typed=f"{CANARY}\n")
    assert json.loads(made.stdout) == TEAM
    assert api.seen[0].body == {"name": "team", "username": "robot", "password": CANARY}
    assert json.loads(cli("registry", "ls").stdout)["registryAuths"] == [TEAM]
    assert cli(*CREATE, CANARY).exit_code == 2
    api.script(problem(409, "REGISTRY_AUTH_EXISTS"))
    refused = cli(*CREATE, typed=CANARY)
    assert refused.exit_code == 5
    assert CANARY not in made.stdout + made.stderr + refused.stdout + refused.stderr


def test_one_is_removed_by_its_name_and_only_if_one_is_meant(cli: Cli, api: FakeApi) -> None:
    api.script(LIST, {"id": "a1", "removed": True})
    assert json.loads(cli("registry", "rm", "team", "--yes").stdout) == {"id": "a1", "removed": True}
    assert (api.seen[1].method, api.seen[1].path) == ("DELETE", "/api/registry-auths/a1")
    api.script({**LIST, "registryAuths": [TEAM, {**TEAM, "id": "a2"}]})
    assert cli("registry", "rm", "team", "--yes").exit_code == 5
    assert cli("registry", "rm", "other", "--yes").exit_code == 4
    assert cli("registry", "rm", "team").exit_code == 2
