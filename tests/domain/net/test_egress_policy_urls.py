"""URLs and hosts: what passes, in which form, and everything that must not."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuherd.domain.egress_policy import (
    BlockedTarget,
    EgressPolicy,
    check_dns_answers,
    check_endpoint,
    check_url,
)
from tests.adapters.egress.payloads import LITERALS, TRICKS

CLOSED = EgressPolicy()
LOOPBACK = EgressPolicy.parse("127.0.0.0/8")


def test_every_known_payload_is_refused_by_its_text_alone(subtests: pytest.Subtests) -> None:
    for url in [*LITERALS, *TRICKS]:
        with subtests.test(url=url), pytest.raises(BlockedTarget):
            check_url(url.replace("{port}", ""), CLOSED)


def test_a_good_url_comes_out_in_plain_ascii(subtests: pytest.Subtests) -> None:
    for url, plain in [
        ("http://example.com", "http://example.com/"),
        ("HTTPS://Example.COM:443/a?b=c#frag", "https://example.com/a?b=c"),
        ("https://example.com.:8443/", "https://example.com:8443/"),
        ("http://example.com:/x", "http://example.com/x"),
        ("http://my_host.example.com:1024/", "http://my_host.example.com:1024/"),
        ("http://[2606:4700:0:0::1111]:8080/p", "http://[2606:4700::1111]:8080/p"),
        ("http://134744072/", "http://8.8.8.8/"),
        ("http://bücher.example/ü?q=ü&r=%C3%BC", "http://xn--bcher-kva.example/%C3%BC?q=%C3%BC&r=%C3%BC"),
        ("http://xn--bcher-kva.example/", "http://xn--bcher-kva.example/"),
        ("http://ｅｘａｍｐｌｅ。com/", "http://example.com/"),
        ("http://example.com。/", "http://example.com/"),
        ('http://example.com/a"b<c>|d', "http://example.com/a%22b%3Cc%3E%7Cd"),
        ("http://example.com/@/user:pass@x", "http://example.com/@/user:pass@x"),
    ]:
        with subtests.test(url=url, plain=plain):
            assert check_url(url, CLOSED).url == plain


def test_odd_forms_are_read_as_the_address_they_mean(subtests: pytest.Subtests) -> None:
    for host, address in [
        ("127.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("127.0.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("0X7F000001", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("①②⑦.⓪.⓪.①", "127.0.0.1"),
        ("127。0。0。1", "127.0.0.1"),
        ("127.65535", "127.0.255.255"),
    ]:
        with subtests.test(host=host, address=address):
            target = check_url(f"http://{host}:8080/", LOOPBACK)
            assert (target.host, target.addresses) == (address, (address,))


@given(st.from_regex(r"(0x[0-9a-f]{1,8}|[0-9]{1,10})(\.(0x[0-9a-f]{1,8}|[0-9]{1,10})){0,3}", fullmatch=True))
@example("0")
@example("1.16777215")
@example("1.16777216")
@example("08.0.0.1")
def test_numeric_hosts_are_read_exactly_as_the_c_library_reads_them(host: str) -> None:
    everything = EgressPolicy.parse("0.0.0.0/0")
    try:
        expected = str(IPv4Address(socket.inet_aton(host)))
    except OSError:
        with pytest.raises(BlockedTarget):
            check_endpoint(host, 80, everything)
        return
    try:
        assert check_endpoint(host, 80, everything).host == expected
    except BlockedTarget as blocked:
        assert blocked.reason.endswith(("link-local", "metadata"))


def test_a_host_that_ends_in_a_number_is_an_address_or_nothing(subtests: pytest.Subtests) -> None:
    for host in [
        "1.2.3.4.5",
        "256.1.1.1",
        "1.2.3.256",
        "0x",
        "08.1",
        "foo.1",
        "1.foo.2",
        "1..2",
        "4294967296",
        "99999999999",
    ]:
        with subtests.test(host=host), pytest.raises(BlockedTarget):
            check_endpoint(host, 80, EgressPolicy.parse("0.0.0.0/0"))


def test_localhost_is_open_only_with_loopback_and_never_asks_dns(subtests: pytest.Subtests) -> None:
    for name in ["localhost", "LOCALHOST.", "foo.localhost", "a.b.LocalHost", "ⓛocalhost"]:
        with subtests.test(name=name):
            with pytest.raises(BlockedTarget):
                check_endpoint(name, 8080, CLOSED)
            with pytest.raises(BlockedTarget):
                check_endpoint(name, 8080, EgressPolicy.parse("10.0.0.0/8"))
            assert check_endpoint(name, 8080, LOOPBACK).addresses == ("127.0.0.1",)
            assert check_endpoint(name, 8080, EgressPolicy.parse("127.0.0.0/8,::1")).addresses == (
                "127.0.0.1",
                "::1",
            )


def test_inside_names_wait_for_dns_only_if_some_network_is_opened(subtests: pytest.Subtests) -> None:
    for name in ["redis", "postgres", "db.internal", "printer.local", "a.localdomain", "nas.home.arpa"]:
        with subtests.test(name=name):
            with pytest.raises(BlockedTarget):
                check_endpoint(name, 8080, CLOSED)
            assert check_endpoint(name, 8080, EgressPolicy.parse("172.18.0.0/16")).addresses == ()


def test_metadata_names_are_refused_whatever_is_opened(subtests: pytest.Subtests) -> None:
    for name in [
        "metadata.google.internal",
        "METADATA.google.internal.",
        "metadata",
        "metadata.goog",
        "instance-data",
    ]:
        with subtests.test(name=name), pytest.raises(BlockedTarget):
            check_endpoint(name, 80, EgressPolicy.parse("0.0.0.0/0"))


def test_usual_ports_are_open(subtests: pytest.Subtests) -> None:
    for port in [80, 443, 1024, 8080, 30022, 65535]:
        with subtests.test(port=port):
            assert check_url(f"http://example.com:{port}/", CLOSED).port == port


REFUSED_PORTS = [0, 1, 22, 23, 25, 53, 81, 110, 143, 444, 445, 465, 587, 993, 995, 1023]
REFUSED_PORTS += [1433, 2375, 2376, 3306, 3389, 5432, 5900, 6379, 9200, 11211, 27017, 65536, 99999]


def test_service_ports_are_refused_in_opened_networks_too(subtests: pytest.Subtests) -> None:
    for port, host in product(REFUSED_PORTS, ["example.com", "127.0.0.1"]):
        with subtests.test(port=port, host=host), pytest.raises(BlockedTarget, match="port"):
            check_url(f"http://{host}:{port}/", LOOPBACK)


def test_hosts_that_are_no_host_names_are_refused(subtests: pytest.Subtests) -> None:
    for host in [
        "",
        ".",
        "..",
        "a..example.com",
        ".example.com",
        "example.com..",
        "-a.example.com",
        "a-.example.com",
        "a" * 64 + ".example.com",
        "ex ample.com",
        "a%2eexample.com",
        "faß.example",
        "a/b.example",
        "[::1",
        ".".join(["abcdefg"] * 40),
    ]:
        with subtests.test(host=host), pytest.raises(BlockedTarget):
            check_endpoint(host, 80, CLOSED)


def test_the_longest_url_passes_and_one_more_character_does_not() -> None:
    longest = "http://example.com/".ljust(2048, "a")
    assert check_url(longest, CLOSED).url == longest
    with pytest.raises(BlockedTarget):
        check_url(longest + "a", CLOSED)


@given(st.text(max_size=80) | st.text(max_size=60).map(lambda tail: f"http://{tail}"))
@example("http://[v1.x]/")
@example("http://\ud800.example.com/")
@example("http://example.com/\ud800")
@example("http://℀.example.com/")
def test_any_text_is_either_refused_or_becomes_a_plain_url_that_means_itself(url: str) -> None:
    try:
        target = check_url(url, CLOSED)
    except BlockedTarget:
        return
    assert target.url.isascii()
    assert check_url(target.url, CLOSED) == target


def test_answers_pass_together_or_not_at_all() -> None:
    assert check_dns_answers(["93.184.216.34", "2606:4700:0::1111"], CLOSED) == (
        "93.184.216.34",
        "2606:4700::1111",
    )
    with pytest.raises(BlockedTarget):
        check_dns_answers(["93.184.216.34", "127.0.0.1"], CLOSED)
    with pytest.raises(BlockedTarget):
        check_dns_answers(["93.184.216.34", "::1"], CLOSED)


def test_twenty_answers_pass_and_one_more_does_not() -> None:
    many = [f"93.184.216.{last}" for last in range(21)]
    assert len(check_dns_answers(many[:20], CLOSED)) == 20
    with pytest.raises(BlockedTarget, match="more than 20"):
        check_dns_answers(many, CLOSED)
