"""Where we may connect: one rule for every URL and host that a user, a name server or the cloud hands us."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, quote, urlsplit

from gpuherd.domain.networks import Address, BlockedTarget, TargetPolicy, check_address, judge

__all__ = [
    "BlockedTarget",
    "Endpoint",
    "Target",
    "TargetPolicy",
    "check_address",
    "check_answers",
    "check_endpoint",
    "check_url",
]

URL_MAX_CHARS = 2048
ANSWERS_MAX = 20

_DEFAULT_PORTS = {"http": 80, "https": 443}
# Databases, caches, queues, remote shells and cluster agents: an HTTP request there can do harm by itself.
_REFUSED_PORTS = frozenset(
    {1433, 1521, 2049, 2181, 2375, 2376, 2379, 2380, 3306, 3389, 5432, 5672, 5900, 5984, 6379, 9042, 9200}
    | {9300, 10250, 11211, 27017, 27018, 27019}
)

_LOOPBACK = ("127.0.0.1", "::1")
_INSIDE_SUFFIXES = (".internal", ".local", ".localdomain", ".home.arpa")
_METADATA_NAMES = frozenset({"metadata", "metadata.goog", "metadata.google.internal", "instance-data"})
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# IDNA 2003 (ours) and 2008 read these differently, so the user and we could mean two different hosts.
_AMBIGUOUS = frozenset("ßẞς")
_URL_SAFE = "/?%:@!$&'()*+,;=-._~[]"


@dataclass(frozen=True)
class Endpoint:
    """A host and port that passed; `addresses` are known for literals and localhost, and empty for names."""

    host: str
    port: int
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Target(Endpoint):
    """A URL that passed, in ASCII, without the fragment."""

    scheme: str
    path: str

    @property
    def url(self) -> str:
        """Return the URL to connect to: what was judged, not what was typed."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def check_url(url: str, policy: TargetPolicy) -> Target:
    """Return where `url` leads as far as its text tells, or raise `BlockedTarget`."""
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
    return Target(endpoint.host, endpoint.port, endpoint.addresses, parts.scheme, ascii_path)


def check_endpoint(host: str, port: int, policy: TargetPolicy) -> Endpoint:
    """Return the host in its plain form, or raise `BlockedTarget`; names still need `check_answers`."""
    if port not in _DEFAULT_PORTS.values() and (not 1024 <= port <= 65535 or port in _REFUSED_PORTS):
        raise BlockedTarget(f"port {port} is not allowed")
    plain = _plain_host(host)
    if (literal := _read_literal(plain)) is not None:
        judge(literal, policy)
        return Endpoint(str(literal), port, (str(literal),))
    if not all(map(_LABEL.fullmatch, plain.split("."))):
        raise BlockedTarget("the host name is not valid")
    if plain == "localhost" or plain.endswith(".localhost"):
        return Endpoint(plain, port, _opened_loopback(policy))
    if plain in _METADATA_NAMES:
        raise BlockedTarget("the host is a cloud metadata name")
    inside = "." not in plain or plain.endswith(_INSIDE_SUFFIXES)
    # With an opened network such a name may be meant; its answers are then judged like all others.
    if inside and not policy.allow:
        raise BlockedTarget("the host is a name of an inside network")
    return Endpoint(plain, port, ())


def check_answers(answers: Sequence[str], policy: TargetPolicy) -> tuple[str, ...]:
    """Return the addresses of a name in plain form; one blocked answer condemns them all."""
    if len(answers) > ANSWERS_MAX:
        raise BlockedTarget(f"the host has more than {ANSWERS_MAX} addresses")
    for answer in answers:
        check_address(answer, policy)
    return tuple(str(ip_address(answer)) for answer in answers)


def _opened_loopback(policy: TargetPolicy) -> tuple[str, ...]:
    opened = tuple(address for address in _LOOPBACK if policy.opens(ip_address(address)))
    if not opened:
        raise BlockedTarget("the host's address is loopback")
    return opened


def _split(url: str) -> SplitResult:
    if len(url) > URL_MAX_CHARS:
        raise BlockedTarget(f"the URL is longer than {URL_MAX_CHARS} characters")
    # Before parsing: urlsplit drops tabs and newlines silently, and browsers read a backslash as a slash.
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
    """Return the host in lower-case ASCII, read as the strangest resolver would read it."""
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
    """Return the address that `host` spells, in any form that glibc takes, or None for a name."""
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
    """Read one to four parts, decimal, octal or hex; the last one fills the bytes that are left."""
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
