"""A field of a wish gets everywhere by itself: into the replies, the job's payload and the store."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from decimal import Decimal

import pytest

from gpuherd.adapters.sql.mapping.wishes import wish_doc, wish_of
from gpuherd.client.wish import Wish as ClientWish
from gpuherd.contract.codec.model import fields_of
from gpuherd.contract.codec.values import camel
from gpuherd.contract.instance import InstanceRecord
from gpuherd.contract.plan import Plan
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.instance.instance import Optimize, Wish
from gpuherd.domain.workload.envs import EnvVar
from gpuherd.domain.workload.volumes import VolumeMount
from gpuherd.entrypoints.schemas.launch import LaunchBody
from gpuherd.usecases.describe.wish import CONTRACT_NAMES, describe_wish, wish_json
from gpuherd.usecases.jobs.kinds import create_payload
from tests.support.builders import an_instance

FIELDS = [it.name for it in fields(Wish)]
# No field has its default, so that one that is lost on the way is seen.
WISH = Wish(
    product_name="RTX 4090 24GB",
    template_id="101",
    gpu_num=3,
    disk_gb=99,
    regions=("AS-SGP-02", "CN-HK-01"),
    billing_mode=BillingMode.ON_DEMAND,
    hourly_usd_max=Decimal("1.50"),
    optimize=Optimize.PRICE,
    capacity_wait_s=600,
    product_names=("RTX 4090 24GB", "RTX 3090 24GB"),
    fallback_after_s=60,
    image_url="docker.io/library/ubuntu:22.04",
    command="sleep 1",
    ports=("8888/http", "22/tcp"),
    min_cuda_version="12.4",
    registry_auth_id="team",
    envs=(EnvVar("A", "v1.key.sealed"), EnvVar("B", secret="hf")),
    volumes=(VolumeMount("v-1", "/data"),),
)


def shown_name(field: str) -> str:
    return CONTRACT_NAMES.get(field, field)


def test_the_wish_of_these_tests_has_no_default() -> None:
    assert all(it.default is MISSING or getattr(WISH, it.name) != it.default for it in fields(Wish))


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("model", [InstanceRecord, Plan])
def test_replies_have_every_field(model: type[InstanceRecord | Plan], field: str) -> None:
    assert shown_name(field) in {it.name for it in fields_of(model)}
    assert shown_name(field) in describe_wish(WISH)


@pytest.mark.parametrize("field", FIELDS)
def test_a_request_may_say_every_field(field: str) -> None:
    asked = {str(it.alias or camel(name)) for name, it in LaunchBody.model_fields.items()}
    assert camel(shown_name(field)) in asked
    by_client = {it.removesuffix("_s") for it in ClientWish.__annotations__}
    assert shown_name(field) in by_client | {"product_name", "product_names", "template_id"}


@pytest.mark.parametrize("field", FIELDS)
def test_the_job_shows_every_field(field: str) -> None:
    key = camel(shown_name(field))
    assert create_payload(an_instance(wish=WISH))[key] == wish_json(WISH)[key]


def test_the_job_and_the_store_have_no_room_for_what_nobody_asked_for() -> None:
    plain = Wish("RTX 4090", "101")
    assert set(create_payload(an_instance(wish=plain))) == {
        *("instanceId", "name", "region", "webhookUrl", "productName", "templateId", "gpuNum", "rootfsSize"),
        *("regions", "billingMode", "maxHourlyPrice"),
    }
    # What the version before reads without asking whether it is there.
    assert set(wish_doc(plain)) == {
        *("template_id", "gpu_num", "disk_gb", "regions", "billing_mode"),
        *("hourly_usd_max", "optimize", "capacity_wait_s"),
    }
    assert wish_of(wish_doc(plain), "RTX 4090") == plain


def test_a_wish_comes_back_from_the_store_as_it_was() -> None:
    kept = json.loads(json.dumps(wish_doc(WISH)))
    assert wish_of(kept, WISH.product_name) == WISH
    assert kept.keys() == set(FIELDS) - {"product_name"}


@pytest.mark.parametrize("field", [it.name for it in fields(Wish) if it.default is not MISSING])
def test_what_an_older_version_did_not_keep_has_its_default(field: str) -> None:
    kept = {name: value for name, value in wish_doc(WISH).items() if name != field}
    assert getattr(wish_of(kept, WISH.product_name), field) == getattr(Wish("", ""), field)
