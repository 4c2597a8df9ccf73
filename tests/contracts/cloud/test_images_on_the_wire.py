"""Registry credentials and templates as Novita answers: ids that are not said, quoted passwords."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuherd.adapters.novita.novita_images import NovitaImages
from gpuherd.domain.cloud.template import CredentialOrder, TemplateDraft
from gpuherd.domain.errors import CloudRefused, CloudUnavailable, Conflict, NotFound, OutcomeUnknown
from gpuherd.domain.secret import Secret
from tests.adapters.novita.builders import open_transport
from tests.adapters.novita.raw_server import http, in_turn, raw_server, saying

CANARY = "canary-of-a-registry"
ORDER = CredentialOrder("team", "robot", Secret(CANARY))
DRAFT = TemplateDraft(name="mine", image="a:1", command=f"login {CANARY}", envs=(("TOKEN", CANARY),))


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"id": "abc"}'])
async def test_a_credential_is_kept_whether_or_not_its_id_is_said(raw: bytes) -> None:
    async with raw_server(saying(http(200, raw))) as server, open_transport(server.base_url) as transport:
        await NovitaImages(transport).create_credential(ORDER)
    (sent,) = server.requests
    assert json.loads(sent.body) == {"name": "team", "username": "robot", "password": CANARY}


async def test_an_error_that_quotes_a_secret_is_shown_without_it() -> None:
    refusal = {"code": 400, "reason": "VALIDATOR_PARAM", "message": f"cannot log in with {CANARY}"}
    async with (
        raw_server(saying(http(400, refusal))) as server,
        open_transport(server.base_url) as transport,
    ):
        images = NovitaImages(transport)
        for call in (images.create_credential(ORDER), images.create_template(DRAFT)):
            with pytest.raises(CloudRefused) as caught:
                await call
            assert "cannot log in with ***" in str(caught.value)


@pytest.mark.parametrize(
    "said", [{"command": f"login {CANARY}"}, {"envs": (("TOKEN", CANARY),)}], ids=["command", "variable"]
)
async def test_what_a_template_holds_is_not_quoted_when_it_is_changed(said: dict[str, Any]) -> None:
    stored = http(200, {"template": {"Id": "7", "name": "mine"}, "templateId": "7"})
    quoted = said.get("command", CANARY)
    refusal = http(400, {"code": 400, "reason": "VALIDATOR_PARAM", "message": f"cannot use {quoted}"})
    async with (
        raw_server(in_turn(stored, refusal)) as server,
        open_transport(server.base_url) as transport,
    ):
        with pytest.raises(CloudRefused) as caught:
            await NovitaImages(transport).change_template("7", TemplateDraft(**said))
    assert "cannot use ***" in str(caught.value) and CANARY not in str(caught.value)


async def test_a_template_of_another_id_is_not_changed() -> None:
    stored = http(200, {"template": {"Id": "8", "name": "another"}, "templateId": "8"})
    async with raw_server(saying(stored)) as server, open_transport(server.base_url) as transport:
        with pytest.raises(CloudUnavailable):
            await NovitaImages(transport).change_template("7", TemplateDraft(name="mine"))
    assert len(server.requests) == 1


async def test_a_template_without_an_id_may_be_there() -> None:
    async with raw_server(saying(http(200, b"{}"))) as server, open_transport(server.base_url) as transport:
        with pytest.raises(OutcomeUnknown):
            await NovitaImages(transport).create_template(DRAFT)


@pytest.mark.parametrize(
    ("reason", "kind", "code"),
    [
        ("RESOURCE_NOT_FOUND", NotFound, "REGISTRY_AUTH_NOT_FOUND"),
        ("IMAGE_AUTH_IN_USE", Conflict, "REGISTRY_AUTH_IN_USE"),
    ],
)
async def test_a_clear_no_is_told_in_our_words(reason: str, kind: type[Exception], code: str) -> None:
    refusal = {"code": 400, "reason": reason, "message": "no"}
    async with (
        raw_server(saying(http(400, refusal))) as server,
        open_transport(server.base_url) as transport,
    ):
        with pytest.raises(kind) as caught:
            await NovitaImages(transport).delete_credential("a")
    assert getattr(caught.value, "code", "") == code


async def test_a_change_of_a_template_says_the_rest_anew() -> None:
    stored = {"Id": "7", "name": "mine", "image": "a:1", "readme": "r", "tools": [{"name": "Jupyter"}]}
    reply = http(200, {"template": stored, "templateId": "7"})
    async with raw_server(saying(reply)) as server, open_transport(server.base_url) as transport:
        await NovitaImages(transport).change_template("7", TemplateDraft(ports=((80, "http"), (81, "http"))))
    ports = [{"type": "http", "ports": [80, 81]}]
    assert json.loads(server.requests[1].body) == {"template": {**stored, "ports": ports}}
