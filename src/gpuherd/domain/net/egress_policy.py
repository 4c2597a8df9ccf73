"""Which addresses are closed to us, and which of those an operator may open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from gpuherd.domain.errors import GpuherdError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def _table(rows: dict[str, str]) -> tuple[tuple[Network, str], ...]:
    return tuple((ip_network(cidr), kind) for cidr, kind in rows.items())


# Link-local and metadata addresses give away the machine's own credentials: no setting opens them.
_NEVER = _table(
    {
        "169.254.0.0/16": "link-local",
        "fe80::/10": "link-local",
        "100.100.100.200/32": "cloud metadata",
        "168.63.129.16/32": "cloud metadata",
        "192.0.0.192/32": "cloud metadata",
        "fd00:ec2::/32": "cloud metadata",
        "fd00:c1::a9fe:a9fe/128": "cloud metadata",
        "fd00:42::42/128": "cloud metadata",
        "fd20:ce::254/128": "cloud metadata",
    }
)
# Spelled out because `is_global` passes several of these and changes its mind between Python releases.
_CLOSED = _table(
    {
        "0.0.0.0/8": "unspecified",
        "10.0.0.0/8": "private",
        "100.64.0.0/10": "shared carrier",
        "127.0.0.0/8": "loopback",
        "172.16.0.0/12": "private",
        "192.0.0.0/24": "reserved",
        "192.0.2.0/24": "documentation",
        "192.88.99.0/24": "reserved",
        "192.168.0.0/16": "private",
        "198.18.0.0/15": "benchmarking",
        "198.51.100.0/24": "documentation",
        "203.0.113.0/24": "documentation",
        "224.0.0.0/4": "multicast",
        "240.0.0.0/4": "reserved",
        "::/128": "unspecified",
        "::1/128": "loopback",
        "fc00::/7": "private",
        "fec0::/10": "site-local",
        "ff00::/8": "multicast",
        "2001:db8::/32": "documentation",
        "3fff::/20": "documentation",
        # Only 2000::/3 is handed out for the public internet; the rest of IPv6 is closed as a whole.
        "::/3": "reserved",
        "4000::/2": "reserved",
        "8000::/1": "reserved",
        "2001::/23": "reserved",
    }
)
# These carry an IPv4 address to its real destination, so that address alone decides.
_TRANSPARENT = tuple(map(ip_network, ("::ffff:0:0/96", "64:ff9b::/96", "2002::/16", "2001::/32")))

_LOW_32 = 0xFFFF_FFFF
_IN_LAST_32_BITS = tuple(map(ip_network, ("::ffff:0:0/96", "::/96", "64:ff9b::/96")))
_LOCAL_NAT64, _SIX_TO_FOUR, _TEREDO = map(ip_network, ("64:ff9b:1::/48", "2002::/16", "2001::/32"))


class BlockedTarget(GpuherdError):
    """We do not connect there; `reason` is fit for users and names no address that they did not name."""

    code = "BLOCKED_TARGET"

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class TargetPolicy:
    """Which closed networks the operator has opened; link-local and metadata stay closed."""

    allow: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, text: str) -> TargetPolicy:
        """Read CIDRs separated by commas; `ValueError` names the first entry that is none."""
        return cls(tuple(_read_network(entry.strip()) for entry in text.split(",") if entry.strip()))

    def opens(self, address: Address) -> bool:
        """Tell whether the operator listed a network that holds `address`."""
        return any(address in network for network in self.allow)


def check_address(address: str, policy: TargetPolicy) -> None:
    """Return if we may connect to this socket address, or raise `BlockedTarget`."""
    try:
        parsed = ip_address(address)
    except ValueError:
        raise BlockedTarget("the host has an address that cannot be read") from None
    judge(parsed, policy)


def judge(address: Address, policy: TargetPolicy) -> None:
    """Return if neither the address nor any address hidden inside it is closed, or raise `BlockedTarget`."""
    if getattr(address, "scope_id", None) is not None:
        raise BlockedTarget("an address with a zone is not allowed")
    faces = (address, *_embedded(address))
    for face in faces:
        _refuse_if_in(_NEVER, face)
    if policy.opens(address):
        return
    for face in faces:
        if not policy.opens(face) and not any(face in network for network in _TRANSPARENT):
            _refuse_if_in(_CLOSED, face)


def _refuse_if_in(table: tuple[tuple[Network, str], ...], address: Address) -> None:
    for network, kind in table:
        if address in network:
            raise BlockedTarget(f"the host's address is {kind}")


def _embedded(address: Address) -> Iterator[IPv4Address]:
    """Yield each IPv4 address to which a translator or tunnel could carry this one."""
    bits = int(address)
    if any(address in network for network in _IN_LAST_32_BITS):
        yield IPv4Address(bits & _LOW_32)
    elif address in _SIX_TO_FOUR:
        yield IPv4Address(bits >> 80 & _LOW_32)
    elif address in _TEREDO:
        yield IPv4Address(bits >> 64 & _LOW_32)
        yield IPv4Address(~bits & _LOW_32)
    elif address in _LOCAL_NAT64:
        # RFC 6052 skips the octet at bits 64-71; the operator may translate at /48, /56, /64 or /96.
        suffix = (bits >> 64 & 0xFFFF) << 56 | bits & (1 << 56) - 1
        yield from (IPv4Address(suffix >> shift & _LOW_32) for shift in (40, 32, 24, 0))


def _read_network(entry: str) -> Network:
    try:
        return ip_network(entry)
    except ValueError as error:
        raise ValueError(f"{entry!r} is not a network: {error}") from None
