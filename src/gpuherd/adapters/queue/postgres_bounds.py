"""How long PostgreSQL may take over what the queue asks of it, and how well it must remember it."""

from __future__ import annotations

from typing import Any

NAME = {"application_name": "gpuherd"}
BOUNDS = {
    "statement_timeout": "15s",
    "lock_timeout": "8s",
    "idle_in_transaction_session_timeout": "5s",
}
# Who takes which job, and that it has ended, may be forgotten when the server crashes: the job is then given
# out once more, which turns have to bear anyhow. What is to be done, and what was done, the store keeps.
FORGETFUL = {"synchronous_commit": "off"}
LIFTED = dict.fromkeys(BOUNDS, "0")


def bounded(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return asyncpg's arguments with our limits, but for those on which the user's own URL has a word."""
    return _with(arguments, {**NAME, **BOUNDS, **FORGETFUL})


def unbounded(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return asyncpg's arguments for a change of the schema, which takes the time that it takes."""
    return {**arguments, "server_settings": {**_with(arguments, NAME)["server_settings"], **LIFTED}}


def _with(arguments: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
    # asyncpg would let ours win over those of the URL.
    ours = {name: value for name, value in settings.items() if name not in arguments["dsn"]}
    return {**arguments, "server_settings": ours}
