"""What an instance costs, in the list and on its page."""

from __future__ import annotations

import io
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from rich.console import Console

from gpuherd.contract.instance_models import Instance
from gpuherd.entrypoints.cli.render.instances import instance_page, price_now, spent
from tests.entrypoints.cli.support import NOW, details


def an_instance(status: str, hourly_now: str = "0.35", **more: Any) -> Instance:
    settled_at = (NOW - timedelta(hours=2)).isoformat()
    cost = {"settled": "1", "settledAt": settled_at, "hourlyNow": hourly_now, "uncertainty": "0.02"}
    return Instance.of({**details(status, hourlyPrice="0.37"), "cost": {**cost, **more}})


@pytest.mark.parametrize(
    ("status", "hourly_now", "price"),
    [
        ("ready", "0.35", "0.37"),
        ("creating", "0", "0.37"),
        ("exited", "0.02", "0.02"),
        ("failed", "0", "0"),
        # Kept after a failure, it goes on costing.
        ("failed", "0.37", "0.37"),
    ],
)
def test_the_price_is_what_is_paid_now_or_will_be(status: str, hourly_now: str, price: str) -> None:
    assert price_now(an_instance(status, hourly_now)) == Decimal(price)


def test_the_cost_goes_on_since_it_was_settled() -> None:
    assert spent(an_instance("ready"), NOW) == "$1.70"
    assert spent(an_instance("exited", "0"), NOW) == "$1.00"


@pytest.mark.parametrize(
    ("instance", "told"),
    [
        (an_instance("ready"), "$1.70 (settled 2 h ago: $1.00 ± 0.02, since then $0.35/h)"),
        (an_instance("exited", "0"), "$1.00 ± 0.02"),
        (an_instance("creating", settledAt=None), None),
    ],
)
def test_an_uncertainty_is_told_of_what_is_settled_alone(instance: Instance, told: str | None) -> None:
    file = io.StringIO()
    Console(file=file, width=100).print(instance_page(instance, NOW))
    lines = [it.removeprefix("cost so far").strip() for it in file.getvalue().splitlines() if "so far" in it]
    assert lines == ([] if told is None else [told])


def test_nothing_is_said_of_a_cost_before_a_list_has_shown_the_machine() -> None:
    assert spent(an_instance("creating", settledAt=None), NOW) == ""
    assert spent(Instance.of(details("creating")), NOW) == ""
    assert price_now(Instance.of(details("exited", hourlyPrice="0.37"))) == Decimal("0.37")
