"""A machine costs what the cloud says that it was rented at, where that can be believed."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.money.meter_reading import Tariff
from gpuherd.domain.money.usage_span import PriceSource, Rate, nano_usd


def rate(shown: str | None, agreed: str | None = "0.20", gpus: int = 1) -> Rate:
    hourly_usd = None if shown is None else Decimal(shown)
    it = Machine("m", "m", Phase.PULLING, "pulling", gpu_num=gpus, billing_mode="spot", hourly_usd=hourly_usd)
    return Tariff().gpu_rate(it, None if agreed is None else Decimal(agreed))


def test_a_price_that_moved_while_a_machine_was_rented_is_the_one_that_the_cloud_shows(
    subtests: pytest.Subtests,
) -> None:
    for shown, gpus, paid in [
        ("0.21", 1, "0.21"),
        ("0.15", 1, "0.15"),
        (None, 1, "0.20"),
        # Of one GPU or of all: nobody has said.
        ("0.22", 2, "0.40"),
        ("0.42", 2, "0.42"),
        ("20", 1, "0.20"),
    ]:
        with subtests.test(shown=shown, gpus=gpus, paid=paid):
            assert rate(shown, gpus=gpus) == Rate(nano_usd(Decimal(paid)), PriceSource.RENTAL)


def test_what_nobody_agreed_is_not_believed() -> None:
    assert rate("0.20", agreed=None).source is PriceSource.UNKNOWN
