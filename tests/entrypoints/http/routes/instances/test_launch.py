"""`POST /api/instances`: what is accepted, and what each mistake is called."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd


async def test_a_good_wish_is_accepted_with_everything_needed_to_follow_it(api: httpx.AsyncClient) -> None:
    reply = await api.post("/api/instances", json=GOOD)
    body = reply.json()
    assert reply.status_code == 201
    assert reply.headers["location"] == f"/api/instances/{body['id']}"
    assert body["instanceId"] == body["id"]
    assert body["status"] == "creating"
    assert body["estimatedReadyTime"] == "2026-01-01T00:04:00.000000Z"
    shown = (await api.get(reply.headers["location"])).json()
    assert (shown["name"], shown["gpuNum"], shown["rootfsSize"], shown["billingMode"]) == (
        "job",
        1,
        60,
        "spot",
    )


@pytest.mark.parametrize("template", [101, "101"])
async def test_a_template_id_may_be_a_number_or_a_word(api: httpx.AsyncClient, template: object) -> None:
    reply = await api.post("/api/instances", json={**GOOD, "templateId": template})
    assert reply.status_code == 201
    assert reply.json()["templateId"] == "101"


MISTAKES: list[tuple[str, Any, str]] = [
    ("name", None, "INVALID_INSTANCE_NAME"),
    ("name", "", "INVALID_INSTANCE_NAME"),
    ("name", "   ", "INVALID_INSTANCE_NAME"),
    ("name", 7, "INVALID_INSTANCE_NAME"),
    ("name", "x" * 101, "INVALID_INSTANCE_NAME"),
    ("name", "a/b", "INVALID_INSTANCE_NAME"),
    ("name", "a\nb", "INVALID_INSTANCE_NAME"),
    ("name", "a\x1b[2Jb", "INVALID_INSTANCE_NAME"),
    ("name", "a--gh1-b", "INVALID_INSTANCE_NAME"),
    ("productName", "", "INVALID_PRODUCT_NAME"),
    ("productName", ["x"], "INVALID_PRODUCT_NAME"),
    ("templateId", "", "INVALID_TEMPLATE_ID"),
    ("templateId", 0, "INVALID_TEMPLATE_ID"),
    ("templateId", -1, "INVALID_TEMPLATE_ID"),
    ("templateId", 1.5, "INVALID_TEMPLATE_ID"),
    ("templateId", True, "INVALID_TEMPLATE_ID"),
    ("gpuNum", 0, "INVALID_GPU_NUM"),
    ("gpuNum", 9, "INVALID_GPU_NUM"),
    ("gpuNum", "2", "INVALID_GPU_NUM"),
    ("gpuNum", True, "INVALID_GPU_NUM"),
    ("gpuNum", 1.5, "INVALID_GPU_NUM"),
    ("gpuNum", None, "INVALID_GPU_NUM"),
    ("rootfsSize", 9, "INVALID_ROOTFS_SIZE"),
    ("rootfsSize", 1001, "INVALID_ROOTFS_SIZE"),
    ("rootfsSize", "60", "INVALID_ROOTFS_SIZE"),
    ("region", "", "INVALID_REGION"),
    ("region", "MARS-01", "INVALID_REGION"),
    ("region", 5, "INVALID_REGION"),
    ("regions", [], "INVALID_REGION"),
    ("regions", ["CN-HK-01", "MARS-01"], "INVALID_REGION"),
    ("regions", "CN-HK-01", "INVALID_REGION"),
    ("webhookUrl", "ftp://example.com/", "INVALID_WEBHOOK_URL"),
    ("webhookUrl", "not a url", "INVALID_WEBHOOK_URL"),
    ("webhookUrl", "http://127.0.0.1/", "INVALID_WEBHOOK_URL"),
    ("webhookUrl", "http://169.254.169.254/", "INVALID_WEBHOOK_URL"),
    ("webhookUrl", 5, "INVALID_WEBHOOK_URL"),
    ("billingMode", "monthly", "INVALID_BILLING_MODE"),
    ("fallbackAfterSeconds", 60, "INVALID_FALLBACK"),
    ("fallbackAfterSeconds", -1, "INVALID_FALLBACK"),
    ("productNames", ["RTX 3090 24GB"], "INVALID_PRODUCT_NAMES"),
    ("maxHourlyPrice", 0, "INVALID_MAX_HOURLY_PRICE"),
    ("waitForCapacity", 60, "INVALID_WAIT_FOR_CAPACITY"),
    ("waitForCapacity", {"seconds": 0}, "INVALID_WAIT_FOR_CAPACITY"),
    ("waitForCapacity", {"seconds": 604_801}, "INVALID_WAIT_FOR_CAPACITY"),
    ("waitForCapacity", {"seconds": 60, "minutes": 1}, "UNKNOWN_FIELD"),
    ("maxHourlyPrice", -1, "INVALID_MAX_HOURLY_PRICE"),
    ("maxHourlyPrice", "cheap", "INVALID_MAX_HOURLY_PRICE"),
    ("maxHourlyPrice", True, "INVALID_MAX_HOURLY_PRICE"),
    ("labels", {"a": 1}, "INVALID_LABELS"),
    ("labels", {"": "x"}, "INVALID_LABELS"),
    ("labels", {str(n): "x" for n in range(21)}, "INVALID_LABELS"),
    ("optimize", "speed", "INVALID_OPTIMIZE"),
    ("onFailure", "shrug", "INVALID_ON_FAILURE"),
    ("maxHourlyprice", 1, "UNKNOWN_FIELD"),
    ("cloudInstanceId", "x", "UNKNOWN_FIELD"),
]


@pytest.mark.parametrize(("field", "value", "code"), MISTAKES, ids=lambda it: repr(it)[:40])
async def test_each_mistake_has_its_code_and_changes_nothing(
    api: httpx.AsyncClient, herd: Herd, field: str, value: object, code: str
) -> None:
    reply = await api.post("/api/instances", json={**GOOD, field: value})
    problem = reply.json()
    assert reply.status_code == 400
    assert reply.headers["content-type"] == "application/problem+json"
    assert problem["code"] == code
    assert [(it["field"], it["code"]) for it in problem["errors"]] == [(field, code)]
    assert problem["requestId"] == reply.headers["x-request-id"]
    assert herd.rows(herd.tables.instance) == []
    assert herd.world.calls[ApiEndpoint.CREATE.value] == 0


@pytest.mark.parametrize(
    "names", [[], None, [""], "RTX 4090 24GB", ["A", "a"], [1], [f"gpu {n}" for n in range(21)]]
)
async def test_a_list_of_products_names_each_of_them_once(api: httpx.AsyncClient, names: object) -> None:
    unnamed = {key: value for key, value in GOOD.items() if key != "productName"}
    problem = (await api.post("/api/instances", json={**unnamed, "productNames": names})).json()
    assert {(it["field"], it["code"]) for it in problem["errors"]} == {
        ("productNames", "INVALID_PRODUCT_NAMES")
    }


async def test_several_products_and_a_fallback_are_accepted_and_shown(api: httpx.AsyncClient) -> None:
    unnamed = {key: value for key, value in GOOD.items() if key != "productName"}
    names = ["RTX 4090 24GB", "RTX 3090 24GB"]
    asked = {**unnamed, "productNames": names, "billingMode": "auto"}
    accepted = (await api.post("/api/instances", json=asked)).json()
    shown = (await api.get(f"/api/instances/{accepted['id']}")).json()
    assert (shown["productName"], shown["productNames"]) == (names[0], names)
    assert (shown["billingMode"], shown["fallbackAfterSeconds"]) == ("auto", 600)
    assert shown["waitForCapacity"] is None


async def test_all_problems_are_reported_at_once(api: httpx.AsyncClient, herd: Herd) -> None:
    wrong = {"name": "", "gpuNum": 99, "rootfsSize": 1, "webhookUrl": "http://10.0.0.1/", "hello": 1}
    problem = (await api.post("/api/instances", json=wrong)).json()
    assert problem["code"] == "VALIDATION_ERROR"
    assert {it["code"] for it in problem["errors"]} == {
        "INVALID_INSTANCE_NAME",
        "INVALID_PRODUCT_NAME",
        "INVALID_TEMPLATE_ID",
        "INVALID_GPU_NUM",
        "INVALID_ROOTFS_SIZE",
        "INVALID_WEBHOOK_URL",
        "UNKNOWN_FIELD",
    }
    assert herd.world.calls.total() == 0


BODIES = {
    "empty": b"",
    "not json": b"{oops",
    "a list": b"[]",
    "a string": b'"job"',
    "too deep": b"[" * 100_000,
    "deep objects": b'{"a":' * 50_000,
    "nan": b'{"gpuNum": NaN}',
    "infinity": b'{"gpuNum": Infinity}',
    "a number without end": b'{"gpuNum": ' + b"9" * 100_000 + b"}",
    "huge exponent": b'{"gpuNum": 1e400}',
    "not utf-8": b'{"name": "\xff"}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "lone surrogate": b'{"name": "\\ud800"}',
    "same field twice": b'{"name": "a", "name": "b"}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_a_body_that_no_program_means_is_refused(
    api: httpx.AsyncClient, herd: Herd, body: bytes
) -> None:
    reply = await api.post("/api/instances", content=body)
    assert reply.status_code == 400, reply.text
    assert reply.json()["code"] in {"INVALID_JSON", "INVALID_BODY", "DUPLICATE_FIELD", "VALIDATION_ERROR"}
    assert herd.rows(herd.tables.instance) == []
    assert herd.world.calls.total() == 0


@pytest.mark.proves("F57")
async def test_a_body_that_is_too_large_is_not_read_to_its_end(api: httpx.AsyncClient) -> None:
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while sent < 100:
            sent += 1
            yield b"x" * 65536

    reply = await api.post("/api/instances", content=endless())
    assert reply.status_code == 413
    assert reply.json()["code"] == "BODY_TOO_LARGE"
    assert sent < 100


async def test_a_compressed_body_is_refused(api: httpx.AsyncClient) -> None:
    reply = await api.post("/api/instances", content=b"x", headers={"content-encoding": "gzip"})
    assert reply.status_code == 400


async def test_what_the_catalogue_does_not_have_is_refused(api: httpx.AsyncClient, herd: Herd) -> None:
    unknown = await api.post("/api/instances", json={**GOOD, "productName": "GTX 9999"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "PRODUCT_NOT_FOUND")
    unknown = await api.post("/api/instances", json={**GOOD, "templateId": "999999"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "TEMPLATE_NOT_FOUND")
    herd.world.faults.add(Fault(FaultKind.SOLD_OUT))
    herd.forget_offers()
    sold_out = await api.post("/api/instances", json=GOOD)
    assert (sold_out.status_code, sold_out.json()["code"]) == (409, "NO_OPTIMAL_PRODUCT_ANY_REGION")
    assert sold_out.json()["details"]["regions"]
    assert herd.rows(herd.tables.instance) == []


async def test_the_same_idempotency_key_means_the_same_instance(api: httpx.AsyncClient, herd: Herd) -> None:
    first = await api.post("/api/instances", json=GOOD, headers={"Idempotency-Key": "k1"})
    again = await api.post(
        "/api/instances", json=dict(reversed(GOOD.items())), headers={"Idempotency-Key": "k1"}
    )
    assert again.status_code == 201
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    other = await api.post("/api/instances", json={**GOOD, "gpuNum": 2}, headers={"Idempotency-Key": "k1"})
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert len(herd.rows(herd.tables.instance)) == 1


@pytest.mark.parametrize("key", ["", "x" * 256, "a b", "ä"])
async def test_a_strange_idempotency_key_is_refused(api: httpx.AsyncClient, key: str) -> None:
    reply = await api.post("/api/instances", json=GOOD, headers=[(b"Idempotency-Key", key.encode())])
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_IDEMPOTENCY_KEY")


async def test_the_create_job_is_urgent_and_carries_all_that_it_needs(api: httpx.AsyncClient) -> None:
    wish = {
        **GOOD,
        "gpuNum": 2,
        "rootfsSize": 80,
        "region": "AS-SGP-02",
        "webhookUrl": "https://example.com/h",
    }
    instance_id = (await api.post("/api/instances", json=wish)).json()["id"]
    (job,) = (await api.get("/api/jobs", params={"type": "create_instance"})).json()["jobs"]
    assert (job["priority"], job["status"], job["instanceId"]) == ("HIGH", "PENDING", instance_id)
    assert (
        json.loads(json.dumps(job["payload"])).items()
        >= {
            "instanceId": instance_id,
            "name": "job",
            "productName": "RTX 4090 24GB",
            "templateId": "101",
            "gpuNum": 2,
            "rootfsSize": 80,
            "region": "AS-SGP-02",
            "webhookUrl": "https://example.com/h",
        }.items()
    )
