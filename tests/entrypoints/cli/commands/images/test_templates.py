"""`gpuherd templates`: a list, one more, another image in one, one less."""

from __future__ import annotations

import json

from tests.entrypoints.cli.support import Cli, FakeApi

MINE = {"id": "7", "templateId": "7", "name": "mine", "imageUrl": "a:1", "ports": [], "envNames": []}


def test_a_template_is_listed_made_changed_and_removed(cli: Cli, api: FakeApi) -> None:
    api.script({"templates": [MINE], "total": 1}, MINE, MINE, {"id": "7", "removed": True})
    assert cli("templates", "--quiet").stdout == "7\n"
    said = ("--command", "serve", "--env", "A=b", "--port", "80/http", "--disk", "80", "--min-cuda", "12.4")
    made = cli("templates", "create", "mine", "--image", "a:1", *said, "--registry-auth", "x", "-q")
    assert made.stdout == "7\n"
    assert api.seen[1].body == {
        "name": "mine",
        "imageUrl": "a:1",
        "command": "serve",
        "envs": {"A": "b"},
        "ports": ["80/http"],
        "rootfsSize": 80,
        "minCudaVersion": "12.4",
        "registryAuthId": "x",
    }
    assert cli("templates", "change", "7", "--image", "a:2").exit_code == 0
    assert (api.seen[2].method, api.seen[2].path) == ("PATCH", "/api/templates/7")
    assert api.seen[2].body == {"imageUrl": "a:2"}
    assert json.loads(cli("templates", "rm", "7", "--yes").stdout) == {"id": "7", "removed": True}


def test_a_change_of_nothing_and_an_unasked_removal_are_usage_errors(cli: Cli, api: FakeApi) -> None:
    assert cli("templates", "change", "7").exit_code == 2
    assert cli("templates", "rm", "7").exit_code == 2
    assert api.seen == []
