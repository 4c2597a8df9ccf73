"""`GET /metrics`: who may read it, what a rental leaves in it, and that no client can make it grow."""

from __future__ import annotations

import random
import re
from pathlib import Path

import httpx
import pytest

from gpuherd.domain.instance.instance import Status
from gpuherd.domain.job import JobStatus
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd
from tests.support.scraping import Scrape, read_page

DOCUMENT = Path(__file__).parents[3] / "docs" / "operations.md"
REQUESTS = "gpuherd_http_requests_total"


async def metrics(api: httpx.AsyncClient) -> Scrape:
    reply = await api.get("/metrics")
    assert reply.status_code == 200
    return read_page(reply.content)


async def rent(api: httpx.AsyncClient, herd: Herd) -> None:
    reply = await api.post("/api/instances", json={**GOOD, "webhookUrl": "https://example.com/hook"})
    await herd.settle(await herd.get(reply.json()["id"]))


async def test_without_a_key_nothing_is_shown(anonymous: httpx.AsyncClient) -> None:
    reply = await anonymous.get("/metrics")
    assert reply.status_code == 401
    assert "gpuherd_" not in reply.text
    anonymous.headers["Authorization"] = "Bearer some_other_key"
    assert (await anonymous.get("/metrics")).status_code == 401


async def test_the_page_is_text_that_prometheus_reads_and_nobody_stores(api: httpx.AsyncClient) -> None:
    reply = await api.get("/metrics")
    assert reply.headers.get_list("content-type") == ["text/plain; version=0.0.4; charset=utf-8"]
    assert reply.headers["cache-control"] == "no-store"


async def test_the_leader_is_shown_under_both_names_for_one_release(api: httpx.AsyncClient) -> None:
    page = await metrics(api)
    assert page.value("gpuherd_is_leader") == 1


async def test_a_rental_can_be_read_from_the_page(api: httpx.AsyncClient, herd: Herd) -> None:
    await rent(api, herd)
    page = await metrics(api)
    assert page.value(REQUESTS, route="/api/instances", method="POST", status="201") == 1
    assert page.value("gpuherd_create_attempts_total", state="bound") == 1
    assert page.value("gpuherd_create_attempts_total", state="unknown") == 0
    assert page.value("gpuherd_instance_status_duration_seconds_count", status="creating") == 1
    assert page.value("gpuherd_instance_status_duration_seconds_count", status="starting") == 1
    assert page.value("gpuherd_job_runs_total", kind="create_instance", outcome="done") == 1
    assert page.value("gpuherd_job_runs_total", kind="monitor_instance", outcome="done") == 1
    assert page.value("gpuherd_webhook_tries_total", outcome="ok") == 4
    assert page.value("gpuherd_webhook_try_duration_seconds_count") == 4
    assert page.value("gpuherd_instances", status="running") == 1
    assert page.value("gpuherd_jobs", status="COMPLETED") == 6
    assert page.value("gpuherd_jobs", status="PENDING") == 0
    assert page.value("gpuherd_cache_misses_total", cache="offers") == 1
    assert page.value("gpuherd_cache_hits_total", cache="offers") >= 1
    assert page.value("gpuherd_cache_entries", cache="templates") == 1


async def test_a_webhook_that_is_refused_is_counted_under_the_reason(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    herd.receiver.accepts = lambda _: len(herd.receiver.tried) > 1
    await rent(api, herd)
    assert (await metrics(api)).value("gpuherd_webhook_tries_total", outcome="http_5xx") == 1


async def test_every_status_is_shown_from_the_beginning(api: httpx.AsyncClient) -> None:
    page = await metrics(api)
    for status in Status:
        assert page.value("gpuherd_instances", status=status.value) == 0
    for state in JobStatus:
        assert page.value("gpuherd_jobs", status=state.value) == 0


async def test_requests_are_told_apart_by_their_route_and_not_by_their_path(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    instance = await herd.launch()
    for path in (instance.id, instance.name, "nobody", "nobody-else"):
        await api.get(f"/api/instances/{path}")
    page = await metrics(api)
    route = "/api/instances/{id_or_name}"
    assert page.value(REQUESTS, route=route, method="GET", status="200") == 2
    assert page.value(REQUESTS, route=route, method="GET", status="404") == 2


@pytest.mark.proves("F57")
@pytest.mark.parametrize("with_key", [True, False])
async def test_a_thousand_invented_paths_and_methods_add_no_series(
    api: httpx.AsyncClient, with_key: bool
) -> None:
    rng = random.Random(11)

    async def knock(times: int) -> None:
        for _ in range(times):
            word = f"canary{rng.getrandbits(64):x}"
            path = rng.choice(
                ["/{}", "/api/instances/{}", "/api/jobs/{}", "/api/instances/{}/events", "/{}/x"]
            )
            method = rng.choice(["GET", "POST", "DELETE", word.upper()])
            headers = {} if with_key else {"Authorization": f"Bearer {word}"}
            await api.request(method, path.format(word), headers=headers)

    await knock(150)
    # The first scrape is itself counted in the second.
    await metrics(api)
    before = await metrics(api)
    await knock(1000)
    reply = await api.get("/metrics")
    after = read_page(reply.content)
    assert "canary" not in reply.text.lower()
    assert len(after.samples) == len(before.samples)
    assert after.total(REQUESTS) == before.total(REQUESTS) + 1001


async def test_names_follow_the_conventions_of_prometheus(api: httpx.AsyncClient, herd: Herd) -> None:
    await rent(api, herd)
    for family in (await metrics(api)).families.values():
        assert re.fullmatch(r"(gpuherd|process)_[a-z]+(_[a-z]+)*", family.name)
        assert family.documentation
        if family.type == "counter":
            assert all(it.name.endswith("_total") for it in family.samples), family.name
        else:
            assert not family.name.endswith(("_total", "_count", "_sum", "_bucket")), family.name
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
        for sample in family.samples:
            assert all(re.fullmatch(r"[a-z]+", label) for label in sample.labels)


async def test_the_document_for_operators_names_exactly_what_is_there(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    await rent(api, herd)
    await metrics(api)
    page = await metrics(api)
    there = {
        f"{it.name}_total" if it.type == "counter" else it.name
        for it in page.families.values()
        if it.name.startswith("gpuherd_")
    }
    table = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    named = {name for line in table for name in re.findall(r"`(gpuherd_[a-z_]+)`", line.split("|")[1])}
    assert there == named


async def test_a_secret_is_never_on_the_page(api: httpx.AsyncClient, herd: Herd) -> None:
    await rent(api, herd)
    text = (await api.get("/metrics")).text
    assert api.headers["Authorization"].removeprefix("Bearer ") not in text
    assert "example.com" not in text
