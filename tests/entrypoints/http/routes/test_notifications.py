"""Endpoints for people over the API: what is taken, what is refused, and what is never shown again."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd

BASE = "/api/webhooks"
TARGETS = {
    "slack": ("https://hooks.slack.com/services/T/B/canary", "https://hooks.slack.com/***"),
    "discord": ("https://discord.com/api/webhooks/1/canary?wait=canary", "https://discord.com/***"),
    "ntfy": ("https://ntfy.example.com:8443/canary?auth=canary", "https://ntfy.example.com:8443/***"),
    "email": ("ops@example.com", "mailto:ops@example.com"),
}


@pytest.mark.parametrize("kind", TARGETS)
async def test_an_endpoint_of_each_kind_is_made_tested_told_and_never_shows_its_address(
    kind: str, api: httpx.AsyncClient, herd: Herd, caplog: pytest.LogCaptureFixture
) -> None:
    url, shown = TARGETS[kind]
    reply = await api.post(f"{BASE}/endpoints", json={"kind": kind, "url": url})
    made = reply.json()
    assert (reply.status_code, made["kind"], made["url"], made["secret"]) == (201, kind, shown, None)
    assert "instance.ready" in made["events"] and "instance.created" not in made["events"]
    tried = await api.post(f"{BASE}/test", json={"endpointId": made["id"]})
    assert (tried.json()["accepted"], tried.json()["url"]) == (True, shown)
    await api.post("/api/instances", json=GOOD)
    await herd.run_for(timedelta(minutes=2))
    said = [made, tried.json()]
    for path in ("endpoints", f"endpoints/{made['id']}", "deliveries"):
        said.append((await api.get(f"{BASE}/{path}")).json())
    (delivery,) = said[-1]["deliveries"]
    assert (delivery["state"], delivery["url"], delivery["type"]) == ("delivered", shown, "instance.ready")
    for path in (f"{BASE}/deliveries/{delivery['id']}", "/api/audit", "/api/jobs"):
        said.append((await api.get(path)).json())
    removed = await api.delete(f"{BASE}/endpoints/{made['id']}")
    assert removed.status_code == 200
    said.append((await api.get(f"{BASE}/deliveries")).json())
    assert "canary" not in json.dumps(said) + caplog.text


async def test_an_endpoint_without_a_kind_is_a_webhook_as_ever(api: httpx.AsyncClient) -> None:
    made = (await api.post(f"{BASE}/endpoints", json={"url": "https://example.com/"})).json()
    assert (made["kind"], made["events"]) == ("webhook", None)
    assert made["secret"].startswith("whsec_")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"kind": "pager", "url": "https://example.com/canary"}, "INVALID_KIND"),
        ({"kind": None, "url": "https://example.com/canary"}, "INVALID_KIND"),
        ({"kind": ["slack"], "url": "https://example.com/canary"}, "INVALID_KIND"),
        ({"kind": "Slack", "url": "https://example.com/canary"}, "INVALID_KIND"),
        ({"kind": "slack"}, "INVALID_WEBHOOK_URL"),
        ({"kind": "slack", "url": "mailto:canary@example.com"}, "INVALID_WEBHOOK_URL"),
        ({"kind": "slack", "url": "http://127.0.0.1/canary"}, "INVALID_WEBHOOK_URL"),
        ({"kind": "discord", "url": "http://169.254.169.254/canary"}, "INVALID_WEBHOOK_URL"),
        ({"kind": "ntfy", "url": "http://[::1]/canary"}, "INVALID_WEBHOOK_URL"),
        ({"kind": "ntfy", "url": "https://ntfy.sh/a canary"}, "INVALID_WEBHOOK_URL"),
        ({"kind": "ntfy", "url": "https://ntfy.sh/canary/"}, "INVALID_WEBHOOK_URL"),
        ({"kind": "email", "url": "https://example.com/canary"}, "INVALID_WEBHOOK_URL"),
        ({"kind": "email", "url": "canary@[127.0.0.1]"}, "INVALID_WEBHOOK_URL"),
        ({"kind": "email", "url": "canary@example.com\r\nBcc: x@example.com"}, "INVALID_WEBHOOK_URL"),
        ({"kind": "webhook", "url": "mailto:canary@example.com"}, "INVALID_WEBHOOK_URL"),
    ],
)
async def test_an_endpoint_that_makes_no_sense_is_refused_without_being_quoted(
    api: httpx.AsyncClient, body: dict[str, Any], code: str
) -> None:
    reply = await api.post(f"{BASE}/endpoints", json=body)
    assert (reply.status_code, reply.json()["code"]) == (400, code)
    assert "canary" not in reply.text
    assert (await api.get(f"{BASE}/endpoints")).json()["total"] == 0


async def test_without_a_mail_server_mail_is_refused_with_what_to_do(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    herd.notifier.sends_mail = False
    reply = await api.post(f"{BASE}/endpoints", json={"kind": "email", "url": "ops@example.com"})
    assert (reply.status_code, reply.json()["code"]) == (409, "EMAIL_NOT_CONFIGURED")
    assert "GPUHERD_SMTP_URL" in reply.json()["detail"]


async def test_a_secret_is_not_made_where_nothing_is_signed(api: httpx.AsyncClient) -> None:
    url, _ = TARGETS["slack"]
    made = (await api.post(f"{BASE}/endpoints", json={"kind": "slack", "url": url})).json()
    reply = await api.post(f"{BASE}/endpoints/{made['id']}/rotate")
    assert (reply.status_code, reply.json()["code"]) == (409, "ENDPOINT_NOT_SIGNED")
