"""Egress policy: protection against server-side request forgery (SSRF).

Decides to which addresses, hosts, ports and URLs gpuherd connects, and which of them an operator may open.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from gpuherd.domain.errors import GpuherdError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def _table(rows: dict[str, str]) -> tuple[tuple[Network, str], ...]:
    return tuple((ip_network(cidr), kind) for cidr, kind in rows.items())


# Link-local and metadata addresses reveal the machine's own credentials. No setting opens them.
_ALWAYS_BLOCKED = _table(
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


# Listed here because `is_global` accepts several of these and differs between Python releases.
_BLOCKED_BY_DEFAULT = _table(
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
        # Only 2000::/3 is assigned to the public internet; the rest of IPv6 is blocked.
        "::/3": "reserved",
        "4000::/2": "reserved",
        "8000::/1": "reserved",
        "2001::/23": "reserved",
    }
)


# These carry an IPv4 address to its real destination, so only that address is checked.
_IPV4_CARRIERS = tuple(map(ip_network, ("::ffff:0:0/96", "64:ff9b::/96", "2002::/16", "2001::/32")))


_LOW_32 = 0xFFFF_FFFF
_IN_LAST_32_BITS = tuple(map(ip_network, ("::ffff:0:0/96", "::/96", "64:ff9b::/96")))
_LOCAL_NAT64, _SIX_TO_FOUR, _TEREDO = map(ip_network, ("64:ff9b:1::/48", "2002::/16", "2001::/32"))


class BlockedTarget(GpuherdError):
    """gpuherd does not connect to this target.

    `reason` is safe to show: it names no address that the user did not name.
    """

    code = "BLOCKED_TARGET"

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class EgressPolicy:
    """The blocked networks that the operator has opened. Link-local and metadata addresses stay blocked."""

    allow: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, text: str) -> EgressPolicy:
        """Parse CIDRs separated by commas; `ValueError` names the first invalid entry."""
        return cls(tuple(_read_network(entry.strip()) for entry in text.split(",") if entry.strip()))

    def opens(self, address: Address) -> bool:
        """Return True if the operator listed a network that holds `address`."""
        return any(address in network for network in self.allow)


def check_address(address: str, policy: EgressPolicy) -> None:
    """Raise `BlockedTarget` if gpuherd may not connect to this socket address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        raise BlockedTarget("the host has an address that cannot be read") from None
    check_parsed_address(parsed, policy)


def check_parsed_address(address: Address, policy: EgressPolicy) -> None:
    """Raise `BlockedTarget` if the address, or an address inside it, is blocked."""
    if getattr(address, "scope_id", None) is not None:
        raise BlockedTarget("an address with a zone is not allowed")
    faces = (address, *_embedded(address))
    for face in faces:
        _refuse_if_in(_ALWAYS_BLOCKED, face)
    if policy.opens(address):
        return
    for face in faces:
        if not policy.opens(face) and not any(face in network for network in _IPV4_CARRIERS):
            _refuse_if_in(_BLOCKED_BY_DEFAULT, face)


def _refuse_if_in(table: tuple[tuple[Network, str], ...], address: Address) -> None:
    for network, kind in table:
        if address in network:
            raise BlockedTarget(f"the host's address is {kind}")


def _embedded(address: Address) -> Iterator[IPv4Address]:
    """Yield each IPv4 address to which a translator or tunnel can map this one."""
    bits = int(address)
    if any(address in network for network in _IN_LAST_32_BITS):
        yield IPv4Address(bits & _LOW_32)
    elif address in _SIX_TO_FOUR:
        yield IPv4Address(bits >> 80 & _LOW_32)
    elif address in _TEREDO:
        yield IPv4Address(bits >> 64 & _LOW_32)
        yield IPv4Address(~bits & _LOW_32)
    elif address in _LOCAL_NAT64:
        # RFC 6052 skips the octet at bits 64-71. The operator may translate at /48, /56, /64 or /96.
        suffix = (bits >> 64 & 0xFFFF) << 56 | bits & (1 << 56) - 1
        yield from (IPv4Address(suffix >> shift & _LOW_32) for shift in (40, 32, 24, 0))


def _read_network(entry: str) -> Network:
    try:
        return ip_network(entry)
    except ValueError as error:
        raise ValueError(f"{entry!r} is not a network: {error}") from None


URL_MAX_CHARS = 2048
DNS_ANSWERS_MAX = 20
_DEFAULT_PORTS = {"http": 80, "https": 443}


# Databases, caches, queues, remote shells and cluster agents: a mere HTTP request can do harm there.
_REFUSED_PORTS = frozenset(
    {1433, 1521, 2049, 2181, 2375, 2376, 2379, 2380, 3306, 3389, 5432, 5672, 5900, 5984, 6379, 9042, 9200}
    | {9300, 10250, 11211, 27017, 27018, 27019}
)


_LOOPBACK = ("127.0.0.1", "::1")
_INTERNAL_SUFFIXES = (".internal", ".local", ".localdomain", ".home.arpa")
_METADATA_NAMES = frozenset({"metadata", "metadata.goog", "metadata.google.internal", "instance-data"})
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


# IDNA 2003 (ours) and 2008 read these differently, so the user and gpuherd could mean different hosts.
_AMBIGUOUS = frozenset("ßẞς")


_URL_SAFE = "/?%:@!$&'()*+,;=-._~[]"


@dataclass(frozen=True)
class AllowedEndpoint:
    """A host and port that passed the checks. `addresses` is empty for names."""

    host: str
    port: int
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class AllowedUrl(AllowedEndpoint):
    """A URL that passed, in ASCII, without its fragment."""

    scheme: str
    path: str

    @property
    def url(self) -> str:
        """Return the URL that was checked, to connect to. It may differ from the text that the user typed."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def check_url(url: str, policy: EgressPolicy) -> AllowedUrl:
    """Return where `url` leads according to its text, or raise `BlockedTarget`."""
    parts = _split(url)
    if parts.scheme not in _DEFAULT_PORTS:
        raise BlockedTarget("only http and https URLs are allowed")
    if "@" in parts.netloc:
        raise BlockedTarget("a user name or password in the URL is not allowed")
    host = parts.hostname or ""
    if "[" in parts.netloc and ":" not in host:
        raise BlockedTarget("only an IPv6 address may stand in brackets")
    endpoint = check_endpoint(host, _read_port(parts), policy)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    ascii_path = quote(path, safe=_URL_SAFE)
    return AllowedUrl(endpoint.host, endpoint.port, endpoint.addresses, parts.scheme, ascii_path)


def check_endpoint(host: str, port: int, policy: EgressPolicy) -> AllowedEndpoint:
    """Return the normalized host, or raise `BlockedTarget`. Names also need `check_dns_answers`."""
    if port not in _DEFAULT_PORTS.values() and (not 1024 <= port <= 65535 or port in _REFUSED_PORTS):
        raise BlockedTarget(f"port {port} is not allowed")
    plain = _plain_host(host)
    if (literal := _read_literal(plain)) is not None:
        check_parsed_address(literal, policy)
        return AllowedEndpoint(str(literal), port, (str(literal),))
    if not all(map(_LABEL.fullmatch, plain.split("."))):
        raise BlockedTarget("the host name is not valid")
    if plain == "localhost" or plain.endswith(".localhost"):
        return AllowedEndpoint(plain, port, _opened_loopback(policy))
    if plain in _METADATA_NAMES:
        raise BlockedTarget("the host is a cloud metadata name")
    inside = "." not in plain or plain.endswith(_INTERNAL_SUFFIXES)
    # With an opened network such a name may be intended. Its answers are checked like all others.
    if inside and not policy.allow:
        raise BlockedTarget("the host is a name of an inside network")
    return AllowedEndpoint(plain, port, ())


def check_dns_answers(answers: Sequence[str], policy: EgressPolicy) -> tuple[str, ...]:
    """Return the normalized addresses of a name. One blocked address blocks the name."""
    if len(answers) > DNS_ANSWERS_MAX:
        raise BlockedTarget(f"the host has more than {DNS_ANSWERS_MAX} addresses")
    for answer in answers:
        check_address(answer, policy)
    return tuple(str(ip_address(answer)) for answer in answers)


def _opened_loopback(policy: EgressPolicy) -> tuple[str, ...]:
    opened = tuple(address for address in _LOOPBACK if policy.opens(ip_address(address)))
    if not opened:
        raise BlockedTarget("the host's address is loopback")
    return opened


def _split(url: str) -> SplitResult:
    if len(url) > URL_MAX_CHARS:
        raise BlockedTarget(f"the URL is longer than {URL_MAX_CHARS} characters")
    # Check before parsing: urlsplit drops tabs and newlines silently, and browsers read a backslash as a
    # slash.
    if any(char.isspace() or not char.isprintable() or char == "\\" for char in url):
        raise BlockedTarget("the URL has a space, a backslash or a control character")
    try:
        return urlsplit(url)
    except ValueError:
        raise BlockedTarget("the URL cannot be read") from None


def _read_port(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        raise BlockedTarget("the port is not a number from 1 to 65535") from None
    return _DEFAULT_PORTS[parts.scheme] if port is None else port


def _plain_host(host: str) -> str:
    """Return the host in lower-case ASCII, as the most permissive resolver would read it."""
    if _AMBIGUOUS & set(host):
        raise BlockedTarget("the host name is ambiguous: write it in its xn-- form")
    plain = unicodedata.normalize("NFKC", host).replace("。", ".").lower().removesuffix(".")
    if not plain:
        raise BlockedTarget("the URL has no host")
    try:
        plain = plain if plain.isascii() else plain.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise BlockedTarget("the host name is not valid") from None
    if len(plain) > 253:
        raise BlockedTarget("the host name is not valid")
    return plain


def _read_literal(host: str) -> Address | None:
    """Return the address that `host` spells in any form that glibc accepts; None for a name."""
    if ":" in host:
        try:
            return IPv6Address(host)
        except ValueError:
            raise BlockedTarget("the host is not a valid IPv6 address") from None
    labels = host.split(".")
    if not _NUMBER.fullmatch(labels[-1]):
        return None
    try:
        return _read_ipv4(labels)
    except ValueError:
        raise BlockedTarget("the host is not a valid IPv4 address") from None


def _read_ipv4(labels: list[str]) -> IPv4Address:
    """Parse one to four parts, decimal, octal or hex. The last part fills the remaining bytes."""
    *head, tail = (_read_number(label) for label in labels)
    if len(head) > 3 or any(part > 255 for part in head) or tail >= 1 << 8 * (4 - len(head)):
        raise ValueError("not an IPv4 address")
    return IPv4Address(sum(part << 8 * (3 - place) for place, part in enumerate(head)) + tail)


def _read_number(label: str) -> int:
    if not _NUMBER.fullmatch(label):
        raise ValueError("not a number")
    if label.startswith("0x"):
        return int(label, 16)
    return int(label, 8 if label.startswith("0") else 10)


HIDDEN_QUERY = "?***"
_URL_WITH_QUERY = re.compile(r"(?P<kept>[a-z][a-z0-9+.-]*://[^?#\s]*)[?#]\S*", re.IGNORECASE | re.ASCII)


def redact_query(url: str) -> str:
    """Return the URL with its query hidden."""
    kept, mark, _ = url.partition("?")
    return f"{kept}{HIDDEN_QUERY}" if mark else url


def redact_urls(value: Any) -> Any:
    """Return JSON in which the query of every URL is hidden."""
    match value:
        case str():
            return _URL_WITH_QUERY.sub(lambda found: found["kept"] + HIDDEN_QUERY, value)
        case dict():
            return {key: redact_urls(inner) for key, inner in value.items()}
        case list():
            return [redact_urls(inner) for inner in value]
        case _:
            return value
