"""Replies become typed values; what is new, missing or odd does not break them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.client import Instance
from gpuherd.client.models import access, account, instance
from gpuherd.contract.codec.model import Model, Undecodable, fields_of, key_of
from tests.client.support.server import details

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
MODELS = [
    it
    for module in (access, account, instance)
    for it in vars(module).values()
    if isinstance(it, type) and issubclass(it, Model) and it is not Model
]
WORDS = sorted(
    {key for it in MODELS for key in map(key_of, fields_of(it))} | {"id", "portMappings", "hourlyPrice"}
)


def test_money_is_decimal_and_times_are_aware() -> None:
    it = Instance.of(
        details(
            "running",
            hourlyPrice="0.35001",
            createdAt="2026-05-01T12:00:00.5+02:00",
            readyAt="2026-05-01T10:00:00",
            portMappings=[{"port": 8888, "endpoint": "https://a.example", "type": "http"}],
            connectionDetails={"ssh": "ssh root@a", "jupyter": None, "webTerminal": None},
            labels={"a": "b"},
            lastError={"code": "X", "message": "m", "at": None},
        )
    )
    assert it.hourly_price == Decimal("0.35001")
    assert it.created_at == datetime(2026, 5, 1, 10, 0, 0, 500000, UTC)
    assert it.ready_at == datetime(2026, 5, 1, 10, tzinfo=UTC)
    assert (it.ssh, it.endpoint(8888), it.endpoint(1)) == ("ssh root@a", "https://a.example", None)
    assert (it.labels, it.last_error and it.last_error.code) == ({"a": "b"}, "X")


def test_what_is_new_is_in_raw_and_breaks_nothing() -> None:
    it = Instance.of(details(leaseEndsAt="2027-01-01T00:00:00Z", status="dreaming"))
    assert it.raw["leaseEndsAt"] == "2027-01-01T00:00:00Z"
    assert it.status == "dreaming"
    assert it == Instance.of(details(status="dreaming"))
    assert hash(it) == hash(Instance.of(details(status="dreaming")))


@pytest.mark.parametrize(
    ("field", "odd"),
    [
        ("hourlyPrice", "much"),
        ("hourlyPrice", "NaN"),
        ("hourlyPrice", True),
        ("createdAt", "yesterday"),
        ("gpuNum", "1"),
        ("gpuNum", True),
        ("usable", "yes"),
        ("portMappings", [{"port": None}]),
        ("labels", ["a"]),
        ("lastError", "X"),
    ],
)
def test_an_odd_optional_field_reads_as_absent(field: str, odd: Any) -> None:
    without = {name: value for name, value in details().items() if name != field}
    assert Instance.of({**without, field: odd}) == Instance.of(without)


@pytest.mark.parametrize("field", ["id", "name", "status"])
def test_what_must_be_there_is_missed(field: str) -> None:
    for odd in (None, dict[str, Any](), list[Any]()):
        with pytest.raises(Undecodable, match=f"'{field}' in its Instance"):
            Instance.of({**details(), field: odd})


def test_nothing_that_lets_somebody_in_is_in_a_repr() -> None:
    ways = {"ssh": "ssh canary", "jupyter": "https://x?token=canary", "webTerminal": "canary"}
    it = Instance.of(details(connectionDetails=ways, webhookUrl="https://x?canary"))
    assert it.ssh == "ssh canary"
    assert "canary" not in repr(it)


@given(st.sampled_from(MODELS), st.dictionaries(st.sampled_from(WORDS), JSON) | JSON)
def test_any_json_is_read_or_refused_in_one_way(model: type[Model], raw: Any) -> None:
    try:
        it = model.of(raw)
    except Undecodable:
        return
    assert it.raw == raw or raw != raw or "nan" in repr(raw)
    repr(it)
