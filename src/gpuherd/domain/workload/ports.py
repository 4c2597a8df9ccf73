"""Ports of a container that the world may reach, as `8888/http`."""

from __future__ import annotations

import re
from collections.abc import Sequence

RESERVED_PORTS = frozenset({2222, 2223, 2224})
MAX_PORTS = 15
PORT_KINDS = ("http", "tcp")

_PORT = re.compile(r"([0-9]{1,5})/([a-z]+)")


def parse_port(text: str) -> tuple[int, str]:
    """Return number and type of a port; `ValueError` says what is wrong with it."""
    found = _PORT.fullmatch(text)
    if found is None or found[2] not in PORT_KINDS:
        raise ValueError("must be written like 8888/http or 22/tcp")
    number = int(found[1])
    if problem := number_problem(number):
        raise ValueError(problem)
    return number, found[2]


def parse_ports(texts: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """Return all of them; `ValueError` also if there are too many, or one is there twice."""
    if len(texts) > MAX_PORTS:
        raise ValueError(f"must not be more than {MAX_PORTS}")
    ports = tuple(map(parse_port, texts))
    if len({number for number, _ in ports}) < len(ports):
        raise ValueError("must not name a port twice")
    return ports


def port_text(port: tuple[int, str]) -> str:
    """Return a port as people write it."""
    return f"{port[0]}/{port[1]}"


def number_problem(number: int) -> str | None:
    """Return why a port cannot be opened."""
    if not 1 <= number <= 65535 or number in RESERVED_PORTS:
        return f"port {number} cannot be used"
    return None
