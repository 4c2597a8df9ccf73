"""How the queue connects to PostgreSQL: any libpq URL as asyncpg's arguments, and the timeouts of a session.

libpq itself takes the URL apart, so its rules for escapes, sockets and lists of hosts hold. A word that
asyncpg has no use for (keepalives, channel binding) is left out; the store's own connections, which speak
libpq, obey it."""

from __future__ import annotations

import re
import ssl
from typing import Any
from urllib.parse import urlencode

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

PORT = "5432"
CONNECT_TIMEOUT_S = 10.0

_SUPPORTED = {
    *("user", "password", "dbname", "passfile", "service", "krbsrvname", "gsslib"),
    *("options", "application_name", "target_session_attrs"),
    *("sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword", "sslnegotiation"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version"),
}


def asyncpg_arguments(url: str) -> dict[str, Any]:
    """Return the keyword arguments of `asyncpg.connect` that mean what `url` means to libpq."""
    words = _take_apart(url)
    kept = {word: value for word, value in words.items() if word in _SUPPORTED}
    # Of several hosts, the one that is not a standby, as the store's own connections want it.
    kept.setdefault("target_session_attrs", "read-write")
    if name := words.get("fallback_application_name"):
        kept.setdefault("application_name", name)
    if hosts := words.get("host") or words.get("hostaddr"):
        kept["host"] = ",".join(_bracketed(host) for host in hosts.split(","))
    if ports := words.get("port"):
        kept["port"] = ",".join(port or PORT for port in ports.split(","))
    arguments: dict[str, Any] = {"timeout": _connect_timeout_s(words)}
    if kept.get("sslrootcert") == "system":
        # libpq's word for the certificates of the machine; with it, only a full check is allowed.
        del kept["sslrootcert"]
        arguments["ssl"] = ssl.create_default_context()
    # Nothing stands before the question mark: asyncpg would take even an empty path for the database's name.
    return {"dsn": f"postgresql://?{urlencode(kept)}", **arguments}


def _take_apart(url: str) -> dict[str, str]:
    # SQLAlchemy's `postgresql+psycopg://` names a driver that libpq has never heard of.
    plain = re.sub(r"^(postgres(?:ql)?)\+\w+://", r"\1://", url)
    try:
        found = conninfo_to_dict(plain)
    except ProgrammingError:
        # Their message quotes the URL, and the URL may hold a password.
        raise ValueError("the database URL is not one that PostgreSQL understands") from None
    return {word: str(value) for word, value in found.items() if value}


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("/") else host


def _connect_timeout_s(words: dict[str, str]) -> float | None:
    seconds = int(words.get("connect_timeout", CONNECT_TIMEOUT_S))
    return float(seconds) if seconds > 0 else None


APPLICATION_NAME = {"application_name": "gpuherd"}
SESSION_TIMEOUTS = {
    "statement_timeout": "15s",
    "lock_timeout": "8s",
    "idle_in_transaction_session_timeout": "5s",
}
# Who takes which job, and that it has ended, may be forgotten when the server crashes: the job is then given
# out once more, which runs have to bear anyhow. What is to be done, and what was done, the store keeps.
ASYNC_COMMIT = {"synchronous_commit": "off"}
NO_TIMEOUTS = dict.fromkeys(SESSION_TIMEOUTS, "0")


def with_timeouts(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return asyncpg's arguments with our limits, but for those on which the user's own URL has a word."""
    return _with(arguments, {**APPLICATION_NAME, **SESSION_TIMEOUTS, **ASYNC_COMMIT})


def without_timeouts(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return asyncpg's arguments for a change of the schema, which takes the time that it takes."""
    return {
        **arguments,
        "server_settings": {**_with(arguments, APPLICATION_NAME)["server_settings"], **NO_TIMEOUTS},
    }


def _with(arguments: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
    # asyncpg would let ours win over those of the URL.
    ours = {name: value for name, value in settings.items() if name not in arguments["dsn"]}
    return {**arguments, "server_settings": ours}
