"""What can be rented at what price, what a region is called, and which templates can be used."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gpuherd.domain.cloud.offer import BillingMode, Offer, Region, Template, TemplateUnusable, check_template


def a_template(**changes: Any) -> Template:
    fields = {"template_id": "101", "name": "pytorch", "image": "docker.io/pytorch/pytorch:2.9"}
    return Template(**{**fields, **changes})


@pytest.mark.parametrize(
    ("mode", "price"), [(BillingMode.SPOT, Decimal("0.35")), (BillingMode.ON_DEMAND, None)]
)
def test_each_billing_mode_has_its_own_price(mode: BillingMode, price: Decimal | None) -> None:
    offer = Offer(
        "4090", "RTX 4090", "HK", "hk-1", True, "high", spot_usd=Decimal("0.35"), on_demand_usd=None
    )
    assert offer.gpu_hourly_usd(mode) == price


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("CN-HK-01", True),
        ("cn-hk-01", True),
        (" CN-HK-01 ", True),
        ("CN-HK-01 (Hong Kong)", True),
        ("cn-hongkong-1", True),
        ("CN-HK", False),
        ("Hong Kong", False),
        ("", False),
    ],
)
def test_a_region_is_called_by_its_code_label_or_cluster(word: str, meant: bool) -> None:
    region = Region("CN-HK-01", "CN-HK-01 (Hong Kong)", "cn-hongkong-1")
    assert region.is_called(word) is meant


@pytest.mark.parametrize(
    "template",
    [
        pytest.param(a_template(), id="plain"),
        pytest.param(a_template(image="x" * 500), id="longest image"),
        pytest.param(a_template(ports=((1, "http"), (65535, "tcp"))), id="first and last port"),
        pytest.param(a_template(ports=((2221, "tcp"), (2225, "http"))), id="beside the reserved ports"),
        pytest.param(a_template(ports=tuple((8000 + n, "http") for n in range(15))), id="most ports"),
        pytest.param(a_template(envs=tuple((f"K{n}", "v") for n in range(100))), id="most variables"),
    ],
)
def test_a_template_that_can_be_used_is_returned_as_it_is(template: Template) -> None:
    assert check_template(template) is template


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"image": ""}, "it names no image", id="no image"),
        pytest.param({"image": " \t"}, "it names no image", id="blank image"),
        pytest.param({"image": "x" * 501}, "its image name is longer than 500 characters", id="long image"),
        pytest.param(
            {"ports": tuple((8000 + n, "http") for n in range(16))},
            "it opens 16 ports, 15 are allowed",
            id="too many ports",
        ),
        pytest.param({"ports": ((0, "tcp"),)}, "port 0 cannot be used", id="port 0"),
        pytest.param({"ports": ((-1, "tcp"),)}, "port -1 cannot be used", id="negative port"),
        pytest.param({"ports": ((65536, "tcp"),)}, "port 65536 cannot be used", id="port too high"),
        pytest.param({"ports": ((2222, "tcp"),)}, "port 2222 cannot be used", id="reserved, first"),
        pytest.param({"ports": ((2223, "tcp"),)}, "port 2223 cannot be used", id="reserved, second"),
        pytest.param({"ports": ((2224, "tcp"),)}, "port 2224 cannot be used", id="reserved, third"),
        pytest.param({"ports": ((80, "udp"),)}, "port 80 has the unknown type 'udp'", id="unknown type"),
        pytest.param(
            {"ports": ((80, "HTTP"),)}, "port 80 has the unknown type 'HTTP'", id="type in capitals"
        ),
        pytest.param(
            {"envs": tuple((f"K{n}", "v") for n in range(101))},
            "it has more than 100 environment variables",
            id="too many variables",
        ),
    ],
)
def test_a_template_that_cannot_be_used_says_why(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(TemplateUnusable) as caught:
        check_template(a_template(**changes))
    assert caught.value.code == "INVALID_TEMPLATE_CONFIGURATION"
    assert caught.value.message == f"template 101 cannot be used: {problem}"


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(TemplateUnusable) as caught:
        check_template(a_template(image="", ports=((2222, "udp"), (0, "tcp"))))
    assert caught.value.message == (
        "template 101 cannot be used: it names no image; port 2222 cannot be used; "
        "port 2222 has the unknown type 'udp'; port 0 cannot be used"
    )


def test_what_people_keep_in_the_environment_is_shown_nowhere() -> None:
    template = a_template(image="", command="serve --key hunter2", envs=(("HF_TOKEN", "hunter2"),))
    assert "hunter2" not in f"{template} {template!r} {[template]}"
    with pytest.raises(TemplateUnusable) as caught:
        check_template(template)
    assert "hunter2" not in f"{caught.value} {caught.value.details}"
