"""The schemas of replies and webhooks are true: every recorded body is as they say, and has nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.golden.recording import RECORDED
from tools.reference_api import described

Json = dict[str, Any]

ASKED = re.compile(r"^(GET|POST|PUT|PATCH|DELETE) (\S+)$", re.MULTILINE)
STATUS = re.compile(r"^< (\d{3})$", re.MULTILINE)
BODY = re.compile(r"^\((?:compact|spaced) JSON\)\n(?P<body>(?:[{}\[\] ].*\n)+)", re.MULTILINE)
EVENT_DATA = re.compile(r"^data: (.*)$", re.MULTILINE)
API_RECORDINGS = [it for it in sorted(RECORDED.glob("*.txt")) if not it.stem.startswith("cli_")]


@cache
def strict_document() -> Json:
    """Return the document with every object closed: a field that it does not name is an error."""
    document = deepcopy(described())
    for schema in document["components"]["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return document


@cache
def validator(schema: str) -> jsonschema_rs.Draft202012Validator:
    whole = {**json.loads(schema), "components": strict_document()["components"]}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True)


def wrong(body: Any, schema: Json) -> list[str]:
    errors = validator(json.dumps(schema)).iter_errors(body)
    return [f"{list(it.instance_path)}: {it.message}" for it in errors]


def route_of(method: str, path: str) -> Json | None:
    """Return the operation that a path means; what has no parameter comes first."""
    path = path.partition("?")[0]
    paths = strict_document()["paths"]
    for it in sorted(paths, key=lambda it: str(it).count("{")):
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", it), path) and method.lower() in paths[it]:
            return dict(paths[it][method.lower()])
    return None


def exchanges(file: Path) -> Iterator[str]:
    yield from re.split(r"^=== .*\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]


def schema_of_reply(method: str, path: str, status: str) -> Json | None:
    operation = route_of(method, path)
    if operation is None or status not in operation["responses"]:
        # No such route, or a refusal that any route may give, such as an unknown method.
        return {"$ref": "#/components/schemas/Problem"} if status >= "4" else None
    (media,) = operation["responses"][status]["content"].values()
    return dict(media["schema"])


def check_exchange(exchange: str) -> int:
    """Return how many bodies were looked at."""
    asked, status, body = ASKED.search(exchange), STATUS.search(exchange), BODY.search(exchange)
    if asked is None:
        return 0
    method, path = asked.groups()
    if path.startswith(("http://", "https://")):
        assert body is not None
        if "> webhook-id: " not in exchange:
            # For people: how it looks is for Slack, Discord and ntfy to say.
            return 0
        said = json.loads(body["body"])
        schema = strict_document()["webhooks"][said["type"]]["post"]["requestBody"]["content"]
        assert wrong(said, schema["application/json"]["schema"]) == []
        return 1
    if "content-type: text/event-stream" in exchange:
        events = EVENT_DATA.findall(exchange)
        media = route_of(method, path)["responses"]["200"]["content"]["text/event-stream"]  # type: ignore[index]
        assert [wrong(json.loads(it), media["x-event-data"]) for it in events] == [[]] * len(events)
        return len(events)
    if body is None or status is None:
        return 0
    found = schema_of_reply(method, path, status[1])
    assert found is not None, f"{method} {path} has no schema for {status[1]}"
    assert wrong(json.loads(body["body"]), found) == [], f"{method} {path} {status[1]}"
    return 1


@pytest.mark.parametrize("file", API_RECORDINGS, ids=lambda it: it.stem)
def test_every_recorded_body_is_as_its_schema_says(file: Path) -> None:
    looked_at = sum(check_exchange(it) for it in exchanges(file))
    assert looked_at or file.stem in ("deliveries_to_people", "metrics", "openapi", "routes")


def test_every_schema_of_a_webhook_has_a_recording() -> None:
    recorded = "".join(it.read_text() for it in RECORDED.glob("deliveries_*.txt"))
    told = set(re.findall(r'^  "type": "(.*)",$', recorded, re.MULTILINE))
    assert strict_document()["webhooks"].keys() == told


def test_every_wrong_body_is_found_out() -> None:
    schema = {"$ref": "#/components/schemas/Operation"}
    good = {
        "operationId": "op_1",
        "instanceId": "inst_1",
        "type": "stop",
        "status": "running",
        "requestedAt": "2026-05-01T12:00:00.000000Z",
        "endedAt": None,
        "phases": [{"phase": "requested", "at": "2026-05-01T12:00:00.000000Z"}],
        "error": None,
    }
    assert wrong(good, schema) == []
    bodies: list[Json] = [
        {"type": "exchange"},
        {"endedAt": "soon"},
        {"phases": [{}]},
        {"requestedAt": None},
        {"x": 1},
    ]
    for bad in bodies:
        assert wrong({**good, **bad}, schema), bad
