"""`/api/registry-auths` and `/api/templates`: what every key rents with, changed by an admin only."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuherd.contract.catalogue_models import RegistryAuthBody
from gpuherd.domain.cloud.template import TemplateDraft
from gpuherd.entrypoints.body_problems import validate_body
from gpuherd.entrypoints.schemas.workload import TemplateBody
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd
from tests.support.keys import bearer, make_key

AUTHS, TEMPLATES = "/api/registry-auths", "/api/templates"
CANARY = "canary-of-a-registry"
LOGIN: dict[str, Any] = {"name": "team", "username": "robot", "password": CANARY}
MINE: dict[str, Any] = {
    "name": "mine",
    "imageUrl": "ghcr.io/team/trainer:1",
    "command": "serve --all",
    "ports": ["8000/http", "22/tcp"],
    "envs": {"TOKEN": CANARY},
    "rootfsSize": 80,
    "minCudaVersion": "12.4",
}


def lose(herd: Herd, kind: FaultKind, endpoint: ApiEndpoint) -> None:
    herd.world.faults.add(Fault(kind, count=1, endpoints=(endpoint,)))


async def test_a_credential_is_kept_by_the_cloud_and_pulls_at_once(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    image = {**GOOD, "imageUrl": "ghcr.io/team/trainer:1"}
    made = await api.post(AUTHS, json=LOGIN)
    auth_id = made.json()["id"]
    assert (made.status_code, made.json()) == (201, {"id": auth_id, "name": "team", "username": "robot"})
    assert herd.world.account.registry_auths[auth_id].password == CANARY
    assert made.json() in (await api.get(AUTHS)).json()["registryAuths"]
    again = await api.post(AUTHS, json=LOGIN)
    assert (again.status_code, again.json()["code"]) == (409, "REGISTRY_AUTH_EXISTS")
    assert (await api.post("/api/instances", json={**image, "registryAuthId": auth_id})).status_code == 201
    removed = await api.delete(f"{AUTHS}/{auth_id}")
    assert removed.json() == {"id": auth_id, "removed": True}
    # That it was there a second ago is forgotten.
    refused = await api.post("/api/instances", json={**image, "registryAuthId": auth_id})
    assert refused.json()["code"] == "REGISTRY_AUTH_NOT_FOUND"
    assert (await api.delete(f"{AUTHS}/{auth_id}")).json()["code"] == "REGISTRY_AUTH_NOT_FOUND"


async def test_a_credential_in_use_stays(api: httpx.AsyncClient) -> None:
    auth_id = (await api.post(AUTHS, json=LOGIN)).json()["id"]
    await api.post(TEMPLATES, json={**MINE, "registryAuthId": auth_id})
    refused = await api.delete(f"{AUTHS}/{auth_id}")
    assert (refused.status_code, refused.json()["code"]) == (409, "REGISTRY_AUTH_IN_USE")


@pytest.mark.parametrize("endpoint", [ApiEndpoint.REGISTRY_SAVE, ApiEndpoint.TEMPLATE_CREATE])
async def test_a_lost_answer_is_looked_after_by_name(
    endpoint: ApiEndpoint, api: httpx.AsyncClient, herd: Herd
) -> None:
    path, body = (AUTHS, LOGIN) if endpoint is ApiEndpoint.REGISTRY_SAVE else (TEMPLATES, MINE)
    lose(herd, FaultKind.LOST_REPLY_BEFORE_COMMIT, endpoint)
    assert (await api.post(path, json=body)).status_code in (502, 503)
    lose(herd, FaultKind.LOST_REPLY_AFTER_COMMIT, endpoint)
    made = await api.post(path, json=body)
    assert (made.status_code, made.json()["name"]) == (201, body["name"])


@pytest.mark.parametrize("endpoint", [ApiEndpoint.REGISTRY_DELETE, ApiEndpoint.TEMPLATE_DELETE])
async def test_whether_a_lost_removal_has_happened_is_looked_up(
    endpoint: ApiEndpoint, api: httpx.AsyncClient, herd: Herd
) -> None:
    path, body = (AUTHS, LOGIN) if endpoint is ApiEndpoint.REGISTRY_DELETE else (TEMPLATES, MINE)
    made = (await api.post(path, json=body)).json()
    lose(herd, FaultKind.LOST_REPLY_BEFORE_COMMIT, endpoint)
    assert (await api.delete(f"{path}/{made['id']}")).status_code in (502, 503)
    lose(herd, FaultKind.LOST_REPLY_AFTER_COMMIT, endpoint)
    assert (await api.delete(f"{path}/{made['id']}")).json() == {"id": made["id"], "removed": True}


@pytest.mark.parametrize(
    ("endpoint", "path", "body", "action"),
    [
        (ApiEndpoint.REGISTRY_SAVE, AUTHS, LOGIN, "registry_auth.create"),
        (ApiEndpoint.TEMPLATE_CREATE, TEMPLATES, MINE, "template.create"),
    ],
)
async def test_who_asked_is_on_record_before_the_cloud_is_asked(
    endpoint: ApiEndpoint,
    path: str,
    body: dict[str, Any],
    action: str,
    api: httpx.AsyncClient,
    herd: Herd,
) -> None:
    herd.world.faults.add(Fault(FaultKind.REFUSE, count=1, endpoints=(endpoint,), status=400, reason="NO"))
    assert (await api.post(path, json=body)).status_code >= 400
    assert action in [it["action"] for it in (await api.get("/api/audit")).json()["entries"]]


async def test_bad_bodies_are_refused_without_a_word_of_the_secret(api: httpx.AsyncClient) -> None:
    wrong = {"name": "", "username": " ", "password": CANARY + "\n", "email": CANARY}
    reply = await api.post(AUTHS, json=wrong)
    codes = {it["code"] for it in reply.json()["errors"]}
    assert codes == {"INVALID_NAME", "INVALID_USERNAME", "INVALID_PASSWORD", "UNKNOWN_FIELD"}
    template = {"ports": ["1/udp"], "envs": {"A": {"secret": CANARY}}, "rootfsSize": 1}
    bad = await api.post(TEMPLATES, json=template)
    assert {it["code"] for it in bad.json()["errors"]} == {
        *("INVALID_NAME", "INVALID_IMAGE", "INVALID_PORTS", "INVALID_ENVS", "INVALID_ROOTFS_SIZE")
    }
    eleven = [f"{port}/http" for port in range(8000, 8011)]
    assert (await api.post(TEMPLATES, json={**MINE, "ports": eleven})).json()["code"] == "INVALID_PORTS"
    long = await api.post(AUTHS, json={"name": "n" * 201, "username": "u" * 512, "password": "p" * 1025})
    assert {it["code"] for it in long.json()["errors"]} == codes - {"UNKNOWN_FIELD"}
    empty = await api.post(AUTHS, json={"name": "a", "username": "\x07", "password": ""})
    assert {it["code"] for it in empty.json()["errors"]} == {"INVALID_USERNAME", "INVALID_PASSWORD"}
    assert CANARY not in reply.text + bad.text


async def test_a_change_says_only_what_is_different(api: httpx.AsyncClient, herd: Herd) -> None:
    # What the list was before is forgotten with each of these.
    assert (await api.get(TEMPLATES)).status_code == 200
    made = await api.post(TEMPLATES, json=MINE)
    shown, template_id = made.json(), made.json()["id"]
    assert (made.status_code, shown["envNames"], shown["problem"]) == (201, ["TOKEN"], None)
    assert shown in (await api.get(TEMPLATES)).json()["templates"]
    before = herd.world.account.templates[template_id]
    assert (before.disk_gb, before.envs) == (80, (("TOKEN", CANARY),))
    changed = await api.patch(f"{TEMPLATES}/{template_id}", json={"imageUrl": "ghcr.io/team/trainer:2"})
    assert changed.json() == {**shown, "imageUrl": "ghcr.io/team/trainer:2"}
    after = herd.world.account.templates[template_id]
    assert (after.start_command, after.envs, after.ports) == (before.start_command, before.envs, before.ports)
    assert (await api.get(f"{TEMPLATES}/{template_id}")).json() == changed.json()
    await api.post("/api/instances", json={**GOOD, "templateId": template_id})
    assert (await api.post(TEMPLATES, json=MINE)).json()["code"] == "TEMPLATE_EXISTS"
    assert (await api.delete(f"{TEMPLATES}/{template_id}")).json() == {"id": template_id, "removed": True}
    assert (await api.get(f"{TEMPLATES}/{template_id}")).status_code == 404
    assert (await api.patch(f"{TEMPLATES}/{template_id}", json={"name": "x"})).status_code == 404


async def test_what_belongs_to_the_cloud_is_not_changed(api: httpx.AsyncClient) -> None:
    for reply in (
        await api.patch(f"{TEMPLATES}/101", json={"name": "x"}),
        await api.delete(f"{TEMPLATES}/101"),
    ):
        assert (reply.status_code, reply.json()["code"]) == (409, "TEMPLATE_NOT_YOURS")
    missing = await api.post(TEMPLATES, json={**MINE, "registryAuthId": "nobody's"})
    assert missing.json()["code"] == "REGISTRY_AUTH_NOT_FOUND"
    # Its names are free, though.
    official = (await api.get(f"{TEMPLATES}/101")).json()["name"]
    mine = (await api.post(TEMPLATES, json={**MINE, "name": official})).json()
    changed = await api.patch(f"{TEMPLATES}/{mine['id']}", json={"registryAuthId": "nobody's"})
    assert (mine["name"], changed.json()["code"]) == (official, "REGISTRY_AUTH_NOT_FOUND")
    # The cloud was asked for nothing that could not be: only the one that was made is on record.
    asked = [it["action"] for it in (await api.get("/api/audit")).json()["entries"]]
    assert [it for it in asked if it.startswith("template.")] == ["template.create"]


async def test_a_key_that_rents_sees_them_and_changes_nothing(api: httpx.AsyncClient, plane: Plane) -> None:
    renter = bearer(await make_key(plane, "write"))
    assert (await api.get(AUTHS, headers=renter)).status_code == 200
    for path, body in ((AUTHS, LOGIN), (TEMPLATES, MINE)):
        made = (await api.post(path, json=body)).json()
        assert (await api.post(path, json={**body, "name": "x"}, headers=renter)).status_code == 403
        assert (await api.delete(f"{path}/{made['id']}", headers=renter)).status_code == 403
    change = await api.patch(f"{TEMPLATES}/{made['id']}", json={"name": "x"}, headers=renter)
    assert change.status_code == 403


async def test_no_password_and_no_variable_is_found_anywhere(
    api: httpx.AsyncClient, herd: Herd, tmp_path: Path
) -> None:
    auth = await api.post(AUTHS, json=LOGIN, headers={"Idempotency-Key": "one"})
    made = await api.post(TEMPLATES, json=MINE, headers={"Idempotency-Key": "two"})
    changed = await api.patch(f"{TEMPLATES}/{made.json()['id']}", json={"envs": {"MORE": CANARY}})
    seen = [auth, made, changed, *[await api.get(it) for it in (AUTHS, TEMPLATES, "/api/audit")]]
    guess = json.dumps(["POST", AUTHS, LOGIN], sort_keys=True, separators=(",", ":"))
    # From a plain hash a short password could be guessed.
    assert hashlib.sha256(guess.encode()).hexdigest() not in repr(herd.rows(herd.tables.claim))
    haystack = "".join(it.text for it in seen) + repr(TemplateDraft(envs=(("A", CANARY),)))
    herd.database.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert CANARY not in haystack and CANARY.encode() not in kept


def test_what_goes_into_a_log_or_a_traceback_shows_no_secret() -> None:
    login, template = validate_body(RegistryAuthBody, LOGIN), validate_body(TemplateBody, MINE)
    shown = repr([login, template, template.to_draft()])
    assert "robot" in shown and "ghcr.io/team/trainer" in shown
    assert CANARY not in shown
