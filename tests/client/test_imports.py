"""A program that uses the client does not load the server."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    "sqlalchemy",
    "fastapi",
    "starlette",
    "uvicorn",
    "alembic",
    "procrastinate",
    "click",
    "rich",
    "structlog",
}
OURS = {
    "gpuherd",
    "gpuherd.client",
    "gpuherd.domain",
    "gpuherd.domain.secret",
    "gpuherd.domain.webhooks",
    "gpuherd.domain.webhooks.webhook_signing",
    "gpuherd.settings_loading",
}


def loaded(statement: str) -> set[str]:
    code = f"import json, sys; {statement}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("name", ["Gpuherd", "AsyncGpuherd"])
def test_nothing_of_the_server_is_loaded(name: str) -> None:
    modules = loaded(f"from gpuherd.client import {name}")
    assert not HEAVY & modules
    ours = {it for it in modules if it.split(".")[0] == "gpuherd"}
    assert {it for it in ours if not it.startswith(("gpuherd.client.", "gpuherd.contract"))} == OURS
