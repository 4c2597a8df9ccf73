"""Small parts of the JSON documents that rows hold."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic_core import to_json

from gpuherd.adapters.sql.column_types import from_micros, to_micros
from gpuherd.domain.machine import PortMapping

Doc = dict[str, Any]


def dumps(value: Any) -> str:
    """Return a value as JSON without any blank.

    Make enums plain values first: this is several times faster than the standard library, but not for them.
    """
    return to_json(value).decode()


def at(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def ports_doc(ports: tuple[PortMapping, ...]) -> list[Doc]:
    return [vars(port) for port in ports]


def ports_of(docs: list[Doc]) -> tuple[PortMapping, ...]:
    return tuple(PortMapping(**doc) for doc in docs)
