"""What can be rented at what price, what a region is called, and which templates can be used."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gpuherd.domain.cloud.offer import BillingMode, Offer, Region
from gpuherd.domain.cloud.template import Template, TemplateUnusable, check_template


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


def test_a_region_is_called_by_its_code_label_or_cluster(subtests: pytest.Subtests) -> None:
    for word, meant in [
        ("CN-HK-01", True),
        ("cn-hk-01", True),
        (" CN-HK-01 ", True),
        ("CN-HK-01 (Hong Kong)", True),
        ("cn-hongkong-1", True),
        ("CN-HK", False),
        ("Hong Kong", False),
        ("", False),
    ]:
        with subtests.test(word=word, meant=meant):
            region = Region("CN-HK-01", "CN-HK-01 (Hong Kong)", "cn-hongkong-1")
            assert region.is_called(word) is meant


def test_a_template_that_can_be_used_is_returned_as_it_is(subtests: pytest.Subtests) -> None:
    for case, template in [
        ("plain", a_template()),
        ("longest image", a_template(image="x" * 500)),
        ("first and last port", a_template(ports=((1, "http"), (65535, "tcp")))),
        ("beside the reserved ports", a_template(ports=((2221, "tcp"), (2225, "http")))),
        ("most ports", a_template(ports=tuple((8000 + n, "http") for n in range(15)))),
        ("most variables", a_template(envs=tuple((f"K{n}", "v") for n in range(100)))),
    ]:
        with subtests.test(case):
            assert check_template(template) is template


def test_a_template_that_cannot_be_used_says_why(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, dict[str, Any], str]] = [
        ("no image", {"image": ""}, "it names no image"),
        ("blank image", {"image": " \t"}, "it names no image"),
        ("long image", {"image": "x" * 501}, "its image name is longer than 500 characters"),
        (
            "too many ports",
            {"ports": tuple((8000 + n, "http") for n in range(16))},
            "it opens 16 ports, 15 are allowed",
        ),
        ("port 0", {"ports": ((0, "tcp"),)}, "port 0 cannot be used"),
        ("negative port", {"ports": ((-1, "tcp"),)}, "port -1 cannot be used"),
        ("port too high", {"ports": ((65536, "tcp"),)}, "port 65536 cannot be used"),
        ("reserved, first", {"ports": ((2222, "tcp"),)}, "port 2222 cannot be used"),
        ("reserved, second", {"ports": ((2223, "tcp"),)}, "port 2223 cannot be used"),
        ("reserved, third", {"ports": ((2224, "tcp"),)}, "port 2224 cannot be used"),
        ("unknown type", {"ports": ((80, "udp"),)}, "port 80 has the unknown type 'udp'"),
        ("type in capitals", {"ports": ((80, "HTTP"),)}, "port 80 has the unknown type 'HTTP'"),
        (
            "too many variables",
            {"envs": tuple((f"K{n}", "v") for n in range(101))},
            "it has more than 100 environment variables",
        ),
    ]
    for case, changes, problem in rows:
        with subtests.test(case):
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
