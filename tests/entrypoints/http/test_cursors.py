"""Cursors: one that no page has given is refused by every list, instead of leading to an empty page."""

from __future__ import annotations

import httpx
import pytest

LISTS = ("/api/instances", "/api/jobs", "/api/webhooks/deliveries", "/api/audit", "/api/events/history")


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("cursor", ["odd", "", "x" * 201, "%00", "inst_01kdvdna00sngxhwbavy8vep2", "-1"])
async def test_a_cursor_that_is_none_is_refused(api: httpx.AsyncClient, path: str, cursor: str) -> None:
    reply = await api.get(f"{path}?cursor={cursor}")
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_CURSOR")
    assert reply.json()["errors"][0]["field"] == "cursor"


async def test_the_cursor_of_another_list_is_refused(api: httpx.AsyncClient) -> None:
    job = "job_01kdvdna00sngxhwbavy8vep2a"
    assert (await api.get(f"/api/jobs?cursor={job}")).status_code == 200
    assert (await api.get(f"/api/instances?cursor={job}")).json()["code"] == "INVALID_CURSOR"
