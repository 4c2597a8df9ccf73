"""The client is light: a program that uses it does not load the server."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"sqlalchemy", "fastapi", "starlette", "pydantic", "uvicorn", "alembic", "pgqueuer", "typer", "rich"}
OURS = {
    "gpuherd",
    "gpuherd.client",
    "gpuherd.domain",
    "gpuherd.domain.access",
    "gpuherd.domain.access.secret",
    "gpuherd.domain.webhooks",
    "gpuherd.domain.webhooks.signing",
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
    assert "gpuherd.contract.codec.schema" not in ours
    assert not {it for it in modules if it.startswith("aiohttp.web")}


def test_the_blocking_client_needs_the_standard_library_only() -> None:
    modules = loaded("from gpuherd.client import Gpuherd, verify_webhook; Gpuherd('http://x', 'k')")
    assert not {"aiohttp", "yarl", "asyncpg", "structlog"} & modules


def test_a_name_that_is_not_there_is_an_import_error() -> None:
    with pytest.raises(ImportError):
        from gpuherd.client import Gpuhurd  # type: ignore[attr-defined]  # noqa: F401
