"""From the cloud's words to a place: paths are appended, nothing else is changed."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.adapters.egress.machine_probes import (
    UnusableAddress,
    host_and_port,
    host_of,
    url_of,
)


@pytest.mark.parametrize(
    ("endpoint", "path", "url"),
    [
        ("https://a.example.com", "/", "https://a.example.com/"),
        ("https://a.example.com/", "/", "https://a.example.com/"),
        ("https://a.example.com/", "/health", "https://a.example.com/health"),
        ("http://127.0.0.1:1234/_apps/id/8888", "/", "http://127.0.0.1:1234/_apps/id/8888/"),
        ("http://127.0.0.1:1234/_apps/id/8888", "/health", "http://127.0.0.1:1234/_apps/id/8888/health"),
        ("http://127.0.0.1:1234/_apps/id/8888/", "/health/", "http://127.0.0.1:1234/_apps/id/8888/health/"),
        ("https://a.example.com", "/h?full=1", "https://a.example.com/h?full=1"),
        ("https://a.example.com/x?token=t", "/h?full=1", "https://a.example.com/x/h?token=t&full=1"),
        ("https://a.example.com?token=t#part", "/h", "https://a.example.com/h?token=t"),
        ("https://a.example.com", "//evil.example/x", "https://a.example.com//evil.example/x"),
        ("http://[2001:db8::1]:8080", "/a%2Fb", "http://[2001:db8::1]:8080/a%2Fb"),
    ],
)
def test_the_path_goes_below_the_endpoint(endpoint: str, path: str, url: str) -> None:
    assert url_of(endpoint, path) == url


@pytest.mark.parametrize(
    "endpoint", ["", "a.example.com", "a.example.com:80", "/x", "http://[::1", "http:/x"]
)
def test_what_is_no_url_cannot_be_asked(endpoint: str) -> None:
    with pytest.raises(UnusableAddress):
        url_of(endpoint, "/")


@pytest.mark.parametrize(
    ("endpoint", "place"),
    [
        ("proxy.example.com:32787", ("proxy.example.com", 32787)),
        ("1.2.3.4:22", ("1.2.3.4", 22)),
        ("tcp://1.2.3.4:22", ("1.2.3.4", 22)),
        ("[2001:db8::1]:22", ("2001:db8::1", 22)),
    ],
)
def test_a_host_and_a_port_are_taken_apart(endpoint: str, place: tuple[str, int]) -> None:
    assert host_and_port(endpoint) == place


@pytest.mark.parametrize(
    "endpoint", ["", ":", "a", "a:", ":22", "a:b", "a:-1", "a:２２", "a:123456", "a:2 2"]
)
def test_what_is_no_host_and_port_cannot_be_connected_to(endpoint: str) -> None:
    with pytest.raises(UnusableAddress):
        host_and_port(endpoint)


@pytest.mark.parametrize(
    ("endpoint", "host"),
    [
        ("http://127.0.0.1:1234/_apps/a/1", "127.0.0.1"),
        ("https://a.example.com/x", "a.example.com"),
        ("proxy.example.com:32787", "proxy.example.com"),
        ("[::1]:22", "[::1]"),
        ("", ""),
    ],
)
def test_ports_of_one_host_share_its_name(endpoint: str, host: str) -> None:
    assert host_of(endpoint) == host


@given(st.text(max_size=60), st.text(max_size=20))
def test_no_words_of_the_cloud_are_too_odd(endpoint: str, path: str) -> None:
    host_of(endpoint)
    for read in (lambda: url_of(endpoint, path), lambda: host_and_port(endpoint)):
        with suppress(UnusableAddress):
            read()
