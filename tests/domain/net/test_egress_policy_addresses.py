"""Which addresses are closed, with every way to wrap an IPv4 address into an IPv6 one."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address, ip_network
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.egress_policy import BlockedTarget, EgressPolicy, check_address

CLOSED = EgressPolicy()
EVERYTHING = EgressPolicy.parse("0.0.0.0/0,::/0")

PUBLIC = [
    "8.8.8.8",
    "93.184.216.34",
    "1.1.1.1",
    "2606:4700::1111",
    "2a00:1450:4001:81b::200e",
    "2001:4860:4860::8888",
]
CLOSED_V4 = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
]
METADATA = [
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "fe80::1",
    "febf::1",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd20:ce::254",
    "fd00:c1::a9fe:a9fe",
    "fd00:42::42",
]
CLOSED_V6 = [
    "::",
    "::1",
    "100::1",
    "1fff::1",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:db8::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd12:3456::1",
    "fec0::1",
    "ff02::1",
    "64:ff9b:1::808:808",
    "::8.8.8.8",
]


def wrappings(inner: IPv4Address) -> dict[str, IPv6Address]:
    """Return `inner` in each of the six disguises (Teredo has two places to hide it)."""
    bits = int(inner)
    public = int(IPv4Address("8.8.8.8"))
    return {
        "mapped": IPv6Address(int(IPv6Address("::ffff:0:0")) | bits),
        "compatible": IPv6Address(bits),
        "nat64": IPv6Address(int(IPv6Address("64:ff9b::")) | bits),
        "local nat64": IPv6Address(int(IPv6Address("64:ff9b:1::")) | bits),
        "6to4": IPv6Address(0x2002 << 112 | bits << 80),
        "teredo client": IPv6Address(0x20010000 << 96 | public << 64 | bits ^ 0xFFFFFFFF),
        "teredo server": IPv6Address(0x20010000 << 96 | bits << 64 | public ^ 0xFFFFFFFF),
    }


def test_public_addresses_are_open(subtests: pytest.Subtests) -> None:
    for address in PUBLIC:
        with subtests.test(address=address):
            check_address(address, CLOSED)


def test_addresses_that_are_not_public_are_closed(subtests: pytest.Subtests) -> None:
    for address in [*CLOSED_V4, *METADATA, *CLOSED_V6]:
        with subtests.test(address=address), pytest.raises(BlockedTarget):
            check_address(address, CLOSED)


def test_a_closed_ipv4_address_stays_closed_in_every_disguise(subtests: pytest.Subtests) -> None:
    for inner, disguise in product(
        [*CLOSED_V4, "169.254.169.254", "168.63.129.16"], list(wrappings(IPv4Address(0)))
    ):
        with subtests.test(inner=inner, disguise=disguise), pytest.raises(BlockedTarget):
            check_address(str(wrappings(IPv4Address(inner))[disguise]), CLOSED)


def test_a_public_ipv4_address_is_open_through_a_public_translator(subtests: pytest.Subtests) -> None:
    for disguise in ["mapped", "nat64", "6to4", "teredo client", "teredo server"]:
        with subtests.test(disguise=disguise):
            check_address(str(wrappings(IPv4Address("93.184.216.34"))[disguise]), CLOSED)


def test_what_is_not_a_plain_address_is_closed(subtests: pytest.Subtests) -> None:
    for text in [
        "",
        "localhost",
        "127.1",
        "1.2.3.4.5",
        "8.8.8.8:80",
        "[::1]",
        "2606:4700::1%eth0",
        "8.8.8.8 ",
    ]:
        with subtests.test(text=text), pytest.raises(BlockedTarget):
            check_address(text, EVERYTHING)


def test_no_setting_opens_link_local_or_metadata(subtests: pytest.Subtests) -> None:
    for address in METADATA:
        with subtests.test(address=address):
            exactly = EgressPolicy((ip_network(address),))
            for policy in (EVERYTHING, exactly):
                with pytest.raises(BlockedTarget):
                    check_address(address, policy)


def test_no_setting_opens_metadata_in_a_disguise(subtests: pytest.Subtests) -> None:
    for disguise in list(wrappings(IPv4Address(0))):
        with subtests.test(disguise=disguise), pytest.raises(BlockedTarget):
            check_address(str(wrappings(IPv4Address("169.254.169.254"))[disguise]), EVERYTHING)


@pytest.mark.parametrize(
    "hidden", ["64:ff9b:1:a83f:81:1000::", "64:ff9b:1:00a9:fe:a9fe::", "64:ff9b:1:0:a9:fea9:fe00:0"]
)
def test_local_nat64_is_searched_at_each_place_where_it_may_hold_an_address(hidden: str) -> None:
    with pytest.raises(BlockedTarget):
        check_address(hidden, EVERYTHING)


def test_an_opened_network_is_open_and_its_neighbours_are_not() -> None:
    policy = EgressPolicy.parse("10.1.0.0/16, ::1/128")
    for address in ("10.1.0.1", "10.1.255.255", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "::1"):
        check_address(address, policy)
    for address in ("10.2.0.1", "10.0.255.255", "127.0.0.1", "192.168.0.1", "::ffff:10.2.0.1", "::2"):
        with pytest.raises(BlockedTarget):
            check_address(address, policy)


@given(st.ip_addresses(v=4), st.sampled_from(list(wrappings(IPv4Address(0)))))
def test_no_disguise_opens_what_is_closed_in_plain(inner: IPv4Address, disguise: str) -> None:
    try:
        check_address(str(inner), CLOSED)
    except BlockedTarget:
        with pytest.raises(BlockedTarget):
            check_address(str(wrappings(inner)[disguise]), CLOSED)


@given(st.ip_addresses())
def test_whatever_is_open_is_inside_the_public_space(address: IPv4Address | IPv6Address) -> None:
    try:
        check_address(str(address), CLOSED)
    except BlockedTarget:
        return
    translated = any(address in ip_network(net) for net in ("::ffff:0:0/96", "64:ff9b::/96"))
    assert address.version == 4 or translated or address in ip_network("2000::/3")
    assert not address.is_multicast and not address.is_loopback and not address.is_link_local


def test_a_policy_is_read_from_a_list() -> None:
    assert EgressPolicy.parse("") == EgressPolicy()
    assert EgressPolicy.parse(" 127.0.0.0/8 ,, 10.1.2.3 ").allow == (
        IPv4Network("127.0.0.0/8"),
        IPv4Network("10.1.2.3/32"),
    )


def test_a_bad_entry_is_named(subtests: pytest.Subtests) -> None:
    for bad in ["10.0.0.0/33", "10.0.0.1/8", "example.com", "10.0.0.0-10.0.0.9", "::/129"]:
        with subtests.test(bad=bad):
            with pytest.raises(ValueError, match="is not a network") as caught:
                EgressPolicy.parse(f"127.0.0.0/8,{bad}")
            assert repr(bad) in str(caught.value)


def test_the_reason_does_not_give_away_what_a_name_resolves_to() -> None:
    with pytest.raises(BlockedTarget) as caught:
        check_address("10.9.8.7", CLOSED)
    assert "10.9.8.7" not in str(caught.value)
    assert ip_address("10.9.8.7").is_private
