"""Secrets are canaries here: whatever gpuherd writes, answers, sends or prints is searched for them."""

from __future__ import annotations

import asyncio
import base64
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.processes.collector import Collector, collector
from tests.support.processes.services import KEY, Novita, Process, Receiver, Server

pytestmark = pytest.mark.processes

NOVITA_KEY = "sk_test_canary_novita_key"
WEBHOOK_CANARY = "Y2FuYXJ5LXdlYmhvb2stc2VjcmV0LTAxMjM0NTY3"
SECRETS_KEY_CANARY = "canary-of-the-key-that-seals-secrets"
VARIABLE_CANARY, NAMED_CANARY = "canary-of-a-variable", "canary-of-a-named-secret"
MAIL_CANARY = "canary-of-the-mail-server"
HEADER_CANARY = "canary-of-the-collector"
# Part of an address, which the database keeps as it keeps all of them; nobody else shall see it.
CHAT_CANARY = "canary-of-a-channel"
# The simulator's catalogue has a private template with this credential.
REGISTRY_CANARY = "demo-registry-password"
REGISTRY_LOGIN = f"demo-robot:{REGISTRY_CANARY}"
PRIVATE_TEMPLATE = "105"
READS = (
    *("/api/jobs", "/api/keys", "/api/audit", "/api/webhooks/endpoints", "/api/webhooks/deliveries"),
    *("/api/orphans", "/api/cache/stats", "/health", "/metrics", "/openapi.json", "/docs", "/"),
    *("/api/instances/comprehensive", "/api/instances?limit=1000", "/api/instances/x"),
    *(
        "/api/secrets",
        "/api/secrets/hf",
        "/api/registry-auths",
        "/api/templates",
        "/instances/new",
        "/instances",
    ),
)
COMMANDS = (
    *("config", "config --json", "doctor", "show job-101 --json", "why job-101", "events", "ls --json"),
    *("keys ls", "webhooks ls", "webhooks deliveries", "audit", "show nobody"),
    *("secrets ls --json", "registry ls --json", "show job-env --json", "why job-env", "backup copy.db"),
)


def wish(name: str, hook: str, template: str) -> dict[str, object]:
    return {"name": name, "productName": "RTX 4090 24GB", "templateId": template, "webhookUrl": hook}


async def printed(server: Server, folder: Path, command: str, **env: str) -> bytes:
    """Return all that a command prints, as somebody sees it who has the secrets in the environment."""
    surroundings = {
        "GPUHERD_URL": server.url,
        "GPUHERD_API_KEY": KEY,
        "GPUHERD_DATA_DIR": str(server.data_dir),
        "NOVITA_API_KEY": NOVITA_KEY,
        "WEBHOOK_SECRET": f"whsec_{WEBHOOK_CANARY}",
        "GPUHERD_SMTP_URL": f"smtp://herd:{MAIL_CANARY}@127.0.0.1:9",
        "GPUHERD_SMTP_FROM": "gpuherd@example.com",
        "GPUHERD_SECRETS_KEY": SECRETS_KEY_CANARY,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{HEADER_CANARY}",
        **env,
    }
    process = Process(command.split(), surroundings, folder / f"{abs(hash(command))}.out")
    await process.start()
    async with asyncio.timeout(60):
        await process.wait()
    said = process.log.read_bytes()
    assert said, command
    return said


async def pages(server: Server) -> bytes:
    """Return the bytes of many replies, with a key and without."""
    found = []
    async with aiohttp.ClientSession() as session:
        for path in READS:
            for headers in ({"Authorization": f"Bearer {KEY}"}, {}):
                async with session.get(server.url + path, headers=headers) as reply:
                    found.append(await reply.read() + repr(reply.raw_headers).encode())
    return b"".join(found)


def workload(name: str, hook: str) -> dict[str, object]:
    envs = {"HF_TOKEN": {"secret": "hf"}, "HARMLESS": VARIABLE_CANARY}
    return {**wish(name, hook, "101"), "imageUrl": "docker.io/library/ubuntu:22.04", "envs": envs}


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.fixture
async def traces() -> AsyncIterator[Collector]:
    async with collector() as it:
        yield it


@pytest.mark.proves("T3")
async def test_no_secret_is_found_anywhere(
    tmp_path: Path, novita: Novita, hooks: Receiver, traces: Collector
) -> None:
    mail = {"GPUHERD_SMTP_URL": f"smtp://herd:{MAIL_CANARY}@127.0.0.1:9"}
    mail["GPUHERD_SMTP_FROM"] = "gpuherd@example.com"
    settings = {"LOG_LEVEL": "debug", "GPUHERD_SECRETS_KEY": SECRETS_KEY_CANARY, **mail}
    settings["OTEL_EXPORTER_OTLP_HEADERS"] = f"authorization=Bearer%20{HEADER_CANARY}"
    server = Server(tmp_path, novita, GPUHERD_OTLP_ENDPOINT=traces.url, **settings)
    await server.start()
    refusal = {"kind": "refuse", "status": 401, "count": 2, "reason": "UNAUTHORIZED"}
    await novita.control("POST", "faults", refusal)
    _, key = await server.call("POST", "/api/keys", {"label": "ci", "scopes": ["write"]})
    _, endpoint = await server.call("POST", "/api/webhooks/endpoints", {"url": hooks.url})
    slack = {"kind": "slack", "url": f"{hooks.url}{CHAT_CANARY}"}
    for people in (slack, {"kind": "email", "url": "ops@example.com"}):
        status, told = await server.call("POST", "/api/webhooks/endpoints", people)
        assert status == 201, told
        await server.call("POST", "/api/webhooks/test", {"endpointId": told["id"]})
    _, rotated = await server.call("POST", f"/api/keys/{key['id']}/webhook-secret/rotate")
    replies: list[Any] = []
    for template in ("101", PRIVATE_TEMPLATE):
        status, made = await server.call(
            "POST", "/api/instances", wish(f"job-{template}", hooks.url, template)
        )
        assert status == 201, made
        replies.append(await server.until_settled(made["id"]))
        for path in ("events", "attempts"):
            replies.append(await server.call("GET", f"/api/instances/{made['id']}/{path}"))
    kept = await server.call("PUT", "/api/secrets/hf", {"value": NAMED_CANARY}, **{"Idempotency-Key": "hf"})
    assert kept[0] == 200, kept
    status, made = await server.call(
        "POST", "/api/instances", workload("job-env", hooks.url), **{"Idempotency-Key": "env"}
    )
    assert status == 201, made
    replies += [kept, made, await server.until_settled(made["id"])]
    # A cloud that repeats what it was given.
    quoted = f"bad environment {VARIABLE_CANARY} and {NAMED_CANARY}"
    quoting = {"status": 400, "count": 1, "reason": "VALIDATOR_PARAM", "endpoints": ["create"]}
    await novita.control("POST", "faults", {**refusal, **quoting, "message": quoted})
    _, refused = await server.call("POST", "/api/instances", workload("job-refused", hooks.url))
    refused = await server.until_settled(refused["id"])
    assert "bad environment ***" in refused["lastError"]["message"]
    replies += [refused, await server.call("GET", f"/api/instances/{refused['id']}/why")]
    await novita.control("POST", "scenario", {"name": "quoted-login"})
    # One whose refusal quotes the password right away, and one that a process without memory hears of.
    for name in ("quoted", "quoted-again"):
        _, refused = await server.call("POST", "/api/instances", wish(name, hooks.url, PRIVATE_TEMPLATE))
        refused = await server.until_settled(refused["id"])
        assert refused["lastError"]["message"].startswith("Novita refuses (HTTP 400): IMAGE_AUTH_INVALID")
        assert "the image cannot be pulled" in refused["lastError"]["message"]
        replies.append(refused)
        for path in ("events", "attempts", "why"):
            replies.append(await server.call("GET", f"/api/instances/{refused['id']}/{path}"))
        await server.process.end(signal.SIGKILL)
        await server.start()
    await novita.control("POST", "scenario", {"name": "calm"})
    # Another process opens what the one before has sealed.
    _, made = await server.call("POST", "/api/instances", workload("job-env-again", hooks.url))
    replies.append(again := await server.until_settled(made["id"]))
    assert again["status"] == "running", again
    replies.append(await server.call("POST", "/api/instances", {"name": 5, "password": NOVITA_KEY}))
    replies.append(await server.call("GET", "/api/jobs", Authorization="Bearer ghk_" + NOVITA_KEY))
    haystack = repr(replies).encode() + await pages(server)
    for some in (COMMANDS[:6], COMMANDS[6:]):
        said = await asyncio.gather(*(printed(server, tmp_path, command) for command in some))
        haystack += b"".join(said)
    assert CHAT_CANARY.encode() not in haystack
    # The file and what is not yet in it; then once more as it is left behind.
    haystack += files(server.data_dir)
    await server.process.end(signal.SIGTERM)
    haystack += files(server.data_dir) + server.process.log.read_bytes()
    assert CHAT_CANARY.encode() not in server.process.log.read_bytes()
    haystack += b"".join(body + repr(headers).encode() for _, headers, body in hooks.got)
    haystack += (tmp_path / "copy.db").read_bytes()
    exported = b"".join(traces.got)
    assert traces.authorizations == {f"Bearer {HEADER_CANARY}"}
    haystack += exported
    assert CHAT_CANARY.encode() not in exported and hooks.url.encode() not in exported
    assert {"rental", "novita create", "webhook try"} <= {it.name for it in traces.spans()}
    secrets: tuple[str, ...] = (SECRETS_KEY_CANARY, VARIABLE_CANARY, NAMED_CANARY)
    secrets += (NOVITA_KEY, WEBHOOK_CANARY, MAIL_CANARY, KEY, REGISTRY_CANARY, key["key"])
    secrets += (HEADER_CANARY, endpoint["secret"], key["webhookSecret"], rotated["secret"])
    for secret in (*secrets, base64.b64encode(REGISTRY_LOGIN.encode()).decode(), REGISTRY_CANARY[:11]):
        bare = secret.removeprefix("whsec_")
        assert bare.encode() not in haystack, bare
    assert len(haystack) > 100_000
    assert len(hooks.got) > 4
