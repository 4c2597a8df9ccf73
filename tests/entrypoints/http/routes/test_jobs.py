"""Jobs that failed for good can be retried by hand."""

from __future__ import annotations

from datetime import timedelta

import httpx

from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd


async def test_a_webhook_that_was_given_up_is_sent_again_on_request(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    herd.receiver.accepts = lambda _: False
    made = (await api.post("/api/instances", json={**GOOD, "webhookUrl": "https://example.com/h"})).json()
    await herd.run_for(timedelta(minutes=2))
    await herd.run_jobs_for(timedelta(days=5))
    failed = (await api.get("/api/jobs", params={"status": "FAILED", "limit": "100"})).json()["jobs"]
    assert {it["type"] for it in failed} == {"send_webhook"}
    assert {it["attempts"] for it in failed} == {10}
    assert all(it["error"].startswith("http_5xx") for it in failed)
    herd.receiver.accepts = lambda _: True
    for job in failed:
        reply = await api.post(f"/api/jobs/{job['id']}/retry")
        assert (reply.status_code, reply.json()["status"]) == (202, "PENDING")
    await herd.run_for(timedelta(minutes=1))
    assert sorted(herd.webhooks()) == sorted(
        ["instance.created", "instance.starting", "instance.running", "instance.ready"]
    )
    assert (await api.get(f"/api/jobs/{failed[0]['id']}")).json()["status"] == "COMPLETED"
    assert made["id"]


async def test_only_a_failed_job_can_be_retried(api: httpx.AsyncClient) -> None:
    await api.post("/api/instances", json=GOOD)
    (job,) = (await api.get("/api/jobs")).json()["jobs"]
    refused = await api.post(f"/api/jobs/{job['id']}/retry")
    assert (refused.status_code, refused.json()["code"]) == (409, "JOB_NOT_RETRYABLE")
    assert (await api.post("/api/jobs/job_x/retry")).status_code == 404
