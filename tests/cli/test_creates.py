"""`gpuherd creates`: whether machines are rented, and the way back."""

from __future__ import annotations

import json

from tests.cli.support import Cli, FakeApi


def test_it_says_why_nothing_is_rented(cli: Cli, api: FakeApi) -> None:
    api.script({"blocked": "a copy runs beside it"})
    assert json.loads(cli("creates").stdout) == {"blocked": "a copy runs beside it"}
    assert [(seen.method, seen.path) for seen in api.seen] == [("GET", "/api/creates")]


def test_resume_lets_it_go_on(cli: Cli, api: FakeApi) -> None:
    api.script({"blocked": None})
    assert json.loads(cli("creates", "resume").stdout) == {"blocked": None}
    assert [(seen.method, seen.path) for seen in api.seen] == [("POST", "/api/creates/resume")]
