"""Where the client looks for its server, and which key it shows to whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuherd.client.async_client import AsyncGpuherd
from gpuherd.client.client_errors import BadConfiguration
from gpuherd.client.server_address import Address, find_server
from gpuherd.client.sync_client import Gpuherd
from gpuherd.settings_loading import AddressInvalid, find_server_address

KEY = "ghk_canary_admin_key_of_this_machine"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A data directory in which a server has left its key."""
    path = tmp_path / "admin.key"
    path.write_text(f"{KEY}\n")
    path.chmod(0o600)
    return tmp_path


def found(url: str | None = None, key: str | None = None, **environ: str) -> tuple[str, str | None]:
    it = find_server(url, key, environ)
    return it.url, None if it.key is None else it.key.reveal()


def test_arguments_go_before_the_environment() -> None:
    environ = {"GPUHERD_URL": "http://env:1", "GPUHERD_API_KEY": "env"}
    assert found(**environ) == ("http://env:1", "env")
    assert found("https://arg", "arg", **environ) == ("https://arg", "arg")


def test_without_any_word_it_is_the_server_on_this_machine(home: Path) -> None:
    local = {"GPUHERD_DATA_DIR": str(home)}
    assert found(**local) == ("http://127.0.0.1:8080", KEY)
    assert found(**local, GPUHERD_HOST="::1", GPUHERD_PORT="9") == ("http://[::1]:9", KEY)
    assert found(**local, GPUHERD_ADMIN_KEY="given") == ("http://127.0.0.1:8080", "given")


def test_the_stored_admin_key_is_shown_to_no_other_server(home: Path) -> None:
    local = {"GPUHERD_DATA_DIR": str(home)}
    assert found("http://elsewhere:8080", **local) == ("http://elsewhere:8080", None)
    assert found(**local, GPUHERD_URL="http://elsewhere:8080") == ("http://elsewhere:8080", None)


def test_a_server_without_a_stored_key_is_asked_without_one(tmp_path: Path) -> None:
    assert found(GPUHERD_DATA_DIR=str(tmp_path))[1] is None
    (tmp_path / "admin.key").touch(0o600)
    assert found(GPUHERD_DATA_DIR=str(tmp_path))[1] is None


def test_a_key_that_others_can_read_is_not_used(home: Path) -> None:
    (home / "admin.key").chmod(0o640)
    with pytest.raises(BadConfiguration, match="chmod 600"):
        found(GPUHERD_DATA_DIR=str(home))


def test_a_path_before_ours_is_kept() -> None:
    assert find_server("https://example.com/gpu/", "k", {}).url == "https://example.com/gpu"


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8080",
        "ftp://x",
        "http://",
        "http://x:port",
        "http://x/?a=b",
        "http://x/#a",
        "http://user:canary@x",
        "http://[::1",
    ],
)
def test_an_address_that_makes_no_sense_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(BadConfiguration, match="GPUHERD_URL") as caught:
        find_server(url, "k", {})
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("key", ["two words", "a\r\nX-Evil: canary", "schlüssel"])
def test_a_key_that_no_header_can_hold_is_refused_without_quoting_it(key: str) -> None:
    with pytest.raises(BadConfiguration, match="GPUHERD_API_KEY") as caught:
        find_server("http://x", key, {})
    assert key not in str(caught.value)


def test_no_repr_shows_a_key() -> None:
    address = Address("http", "x", 1, "", find_server("http://x", KEY, {}).key)
    for it in (
        address,
        Gpuherd("http://x", KEY),
        AsyncGpuherd("http://x", KEY),
        Gpuherd("http://x", KEY).keys,
    ):
        assert KEY not in repr(it) and KEY not in str(it)
    assert address.headers == {"Authorization": f"Bearer {KEY}"}


def test_a_settings_file_says_what_the_environment_leaves_out(tmp_path: Path) -> None:
    file = tmp_path / "gpuherd.toml"
    file.write_text('gpuherd_url = "http://file:1"\nGPUHERD_API_KEY = "of-the-file"\n')
    for environ, expected in (
        ({}, ("http://file:1", "of-the-file")),
        ({"GPUHERD_URL": "http://env:2"}, ("http://env:2", "of-the-file")),
        ({"GPUHERD_URL": "http://env:2", "GPUHERD_API_KEY": "env"}, ("http://env:2", "env")),
    ):
        address = find_server_address(environ=environ, settings_file=file)
        assert (address.url, address.key) == expected
        assert "of-the-file" not in repr(address)


def test_a_settings_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "gpuherd.toml"
    file.write_text("not = [toml")
    with pytest.raises(AddressInvalid, match=r"gpuherd\.toml: cannot be read"):
        find_server_address(environ={}, settings_file=file)
