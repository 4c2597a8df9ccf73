"""Every libpq URL means the same to asyncpg."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from asyncpg.connect_utils import _parse_connect_dsn_and_args as understood_by_asyncpg
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from gpuherd.adapters.queue.postgres_connect import CONNECT_TIMEOUT_S, asyncpg_arguments


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGSSLMODE", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def parsed(url: str) -> tuple[list[Any], Any]:
    """Return the addresses and the parameters as asyncpg would use them."""
    arguments = asyncpg_arguments(url)
    nothing = dict.fromkeys(
        [
            "host",
            "port",
            "user",
            "password",
            "passfile",
            "database",
            "ssl",
            "service",
            "servicefile",
            "direct_tls",
            "server_settings",
            "target_session_attrs",
            "krbsrvname",
            "gsslib",
        ]
    )
    return understood_by_asyncpg(**{**nothing, "dsn": arguments["dsn"], "ssl": arguments.get("ssl")})


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("postgresql:///db?host=/run/pg", ["/run/pg/.s.PGSQL.5432"]),
        ("postgresql:///db?host=/run/pg&port=6000", ["/run/pg/.s.PGSQL.6000"]),
        ("postgresql://%2Frun%2Fpg/db", ["/run/pg/.s.PGSQL.5432"]),
        ("postgres://h/db", [("h", 5432)]),
        ("postgresql+psycopg://h:1/db", [("h", 1)]),
        ("postgresql://[::1]:5433/db", [("::1", 5433)]),
        ("postgresql://a:1,b/db", [("a", 1), ("b", 5432)]),
        ("postgresql:///db?hostaddr=10.0.0.1", [("10.0.0.1", 5432)]),
        ("host=/run/pg dbname=db", ["/run/pg/.s.PGSQL.5432"]),
    ],
)
def test_the_address_is_found(url: str, addresses: list[Any]) -> None:
    found, parameters = parsed(url)
    assert found == addresses
    assert parameters.database == "db"


def test_user_password_and_database_are_unescaped() -> None:
    _, parameters = parsed("postgresql://a%40b:p%2Fw%20%26@h/my%20db")
    assert (parameters.user, parameters.password, parameters.database) == ("a@b", "p/w &", "my db")


@given(
    st.fixed_dictionaries(
        {
            name: st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
            for name in ("user", "password", "dbname")
        }
    )
)
def test_any_password_survives(words: dict[str, str]) -> None:
    _, parameters = parsed(make_conninfo(host="h", **words))
    found = {"user": parameters.user, "password": parameters.password, "dbname": parameters.database}
    assert found == words


def test_session_settings_go_to_the_server_and_the_words_of_libpq_do_not() -> None:
    _, parameters = parsed(
        "postgresql://h/db?options=-csearch_path%3Dx&application_name=herd&keepalives=1&channel_binding=require"
        "&client_encoding=utf8&tcp_user_timeout=5"
    )
    assert parameters.server_settings == {"options": "-csearch_path=x", "application_name": "herd"}


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("", "read-write"),
        ("?target_session_attrs=primary", "primary"),
        ("?target_session_attrs=any", "any"),
        ("?target_session_attrs=prefer-standby", "prefer-standby"),
    ],
)
def test_of_several_hosts_the_one_that_takes_writes_is_wanted_unless_the_url_says_otherwise(
    words: str, wanted: str
) -> None:
    addresses, parameters = parsed(f"postgresql://a,b/db{words}")
    assert addresses == [("a", 5432), ("b", 5432)]
    assert parameters.target_session_attrs.value == wanted
    assert parameters.server_settings is None


def test_a_fallback_name_is_a_name() -> None:
    _, parameters = parsed("postgresql://h/db?fallback_application_name=herd")
    assert parameters.server_settings == {"application_name": "herd"}
    _, parameters = parsed("postgresql://h/db?fallback_application_name=herd&application_name=mine")
    assert parameters.server_settings == {"application_name": "mine"}


def test_encryption_is_kept() -> None:
    _, parameters = parsed("postgresql://h/db?sslmode=disable")
    assert not parameters.ssl
    _, parameters = parsed("postgresql://h/db?sslmode=require")
    assert parameters.ssl.verify_mode == ssl.CERT_NONE
    _, parameters = parsed("postgresql://h/db?sslmode=verify-full&sslrootcert=system")
    assert (parameters.ssl.verify_mode, parameters.ssl.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [("", CONNECT_TIMEOUT_S), ("?connect_timeout=3", 3.0), ("?connect_timeout=0", None)],
)
def test_the_time_to_connect_is_limited(words: str, seconds: float | None) -> None:
    assert asyncpg_arguments(f"postgresql://h/db{words}")["timeout"] == seconds


@pytest.mark.parametrize("url", ["mysql://u:hunter2@h/db", "postgresql://u:hunter2@h:port/db?nonsense=1"])
def test_a_url_that_is_none_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ValueError, match="database URL") as refusal:
        asyncpg_arguments(url)
    assert "hunter2" not in str(refusal.value)
    assert refusal.value.__suppress_context__


@pytest.mark.postgres
async def test_both_drivers_reach_the_same_database(postgres_url: str) -> None:
    connection = await asyncpg.connect(**asyncpg_arguments(postgres_url))
    try:
        found = await connection.fetchval("SELECT current_database()")
    finally:
        await connection.close()
    async with await psycopg.AsyncConnection.connect(postgres_url) as other:
        assert found == other.info.dbname
