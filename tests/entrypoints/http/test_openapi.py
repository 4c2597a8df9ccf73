"""The OpenAPI document tells the truth: requests are made from it, and replies are held against it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuherd.adapters.sql import rental_tables, service_tables
from gpuherd.entrypoints.http.http_app import ROUTERS
from gpuherd.entrypoints.route_scopes import OPEN, ROUTE_SCOPES
from gpuherd.entrypoints.use_case_access import Plane
from tests.entrypoints.http.conftest import GOOD
from tests.entrypoints.http.openapi_values import NASTY, Json, each_field_wrong, fitting, resolved, unfitting
from tests.support.herd import Herd
from tests.support.keys import make_key

EXAMPLES = 8
NO_CONTENT = "204"
PROBLEM = "application/problem+json"
# Its reply has no end to wait for; its own tests read it as it comes.
ENDLESS = "/api/events"
WATCHED = (
    rental_tables.instance,
    service_tables.api_key,
    service_tables.webhook_endpoint,
    rental_tables.operation,
    service_tables.delivery,
)
COUNTS = sa.select(*(sa.select(sa.func.count()).select_from(it).scalar_subquery() for it in WATCHED))


KEYWORDS = {
    *("type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf", "format", "pattern", "default", "title"),
    *("description", "examples", "properties", "required", "additionalProperties", "propertyNames"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "items"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "patternProperties"),
    *("if", "then", "else", "not"),
    "discriminator",  # of OpenAPI
}
# To write the document takes longer than most tests here, and it does not depend on whose it is.
_written: list[Json] = []


@pytest.fixture
async def document(api: httpx.AsyncClient) -> Json:
    if not _written:
        _written.append((await api.get("/openapi.json")).json())
    return _written[0]


def operations(document: Json) -> list[tuple[str, str, Json]]:
    return [
        (method.upper(), path, said)
        for path, methods in document["paths"].items()
        for method, said in methods.items()
    ]


def _keywords(schema: Any) -> Iterator[str]:
    """Yield the words of a schema and of those inside it; names of properties and examples are none."""
    if not isinstance(schema, dict):
        return
    yield from schema
    for inner in (*schema.get("anyOf", []), *schema.get("oneOf", []), *schema.get("allOf", [])):
        yield from _keywords(inner)
    for inner in (*schema.get("properties", {}).values(), schema.get("items")):
        yield from _keywords(inner)
    yield from _keywords(schema.get("additionalProperties"))


def references(value: Any) -> set[str]:
    """Return all references below a part of the document."""
    if isinstance(value, list):
        return set().union(*map(references, value))
    if not isinstance(value, dict):
        return set()
    here = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
    return here.union(*map(references, value.values()))


def _has_properties(schema: Json, document: Json) -> bool:
    if choices := schema.get("anyOf"):
        return all(_has_properties(it, document) for it in choices)
    return bool(resolved(schema["$ref"], document)["properties"])


class TestTheDocument:
    async def test_every_reference_leads_somewhere(self, document: Json) -> None:
        found = references(document)
        assert "#/components/schemas/Problem" in found
        assert "#/components/schemas/WaitForCapacity" in found
        for reference in found:
            assert resolved(reference, document)["type"], reference
        assert "$defs" not in json.dumps(document)

    async def test_linters_find_no_error(self, document: Json) -> None:
        """What `redocly lint` complained about; docs/api.md has the command that runs all of its rules."""
        assert [it["url"] for it in document["servers"]] == ["/"]
        schemes = document["components"]["securitySchemes"].keys()
        everything = [said for _, _, said in operations(document)]
        for said in [*everything, *(it["post"] for it in document["webhooks"].values())]:
            assert {name for it in said["security"] for name in it} <= schemes, said["operationId"]
        ids = [it["operationId"] for it in everything]
        assert len(ids) == len(set(ids))

    async def test_limits_that_are_whole_numbers_are_written_so(self, document: Json) -> None:
        # As text, since 8 == 8.0.
        words = json.dumps(
            [document["components"], [it.get("parameters") for *_, it in operations(document)]]
        )
        limits = re.findall(r'"(?:exclusive)?(?:m|M)(?:in|ax)imum": ([^,}]+)', words)
        assert len(limits) > 20
        assert [it for it in limits if it.endswith(".0")] == []

    async def test_schemas_say_nothing_that_json_schema_does_not_know(self, document: Json) -> None:
        """Limits of a validator (`gt`, `max_digits`) leak into a schema where they stand outside a type."""
        requests = [it for it in document["components"]["schemas"] if it.endswith("Body")]
        assert len(requests) >= 10
        found = {word for it in document["components"]["schemas"].values() for word in _keywords(it)}
        assert found - KEYWORDS == set()

    async def test_generators_of_clients_find_a_plain_object_in_every_request(self, document: Json) -> None:
        for name, schema in document["components"]["schemas"].items():
            if name.endswith("Body") and "properties" in schema:
                assert not {"oneOf", "anyOf", "allOf"} & schema.keys(), name

    async def test_every_operation_tells_what_it_answers(self, document: Json) -> None:
        for method, path, said in operations(document):
            good = [it for it in said["responses"] if it.startswith("2")]
            assert good, path
            for status in good:
                if status == NO_CONTENT:
                    continue
                (media,) = said["responses"][status]["content"].values()
                assert media["schema"], path
            if ROUTE_SCOPES[method, path] is not OPEN:
                assert said["responses"].keys() >= {"401", "403", "429", "500", "503"}
            for status, reply in said["responses"].items():
                if status >= "4" and PROBLEM in reply.get("content", {}):
                    assert reply["content"][PROBLEM]["schema"] == {"$ref": "#/components/schemas/Problem"}

    async def test_no_body_is_a_bare_object(self, document: Json) -> None:
        bodies = {
            f"{method} {path} {status}": media["schema"]
            for method, path, said in operations(document)
            for status, reply in said["responses"].items()
            for kind, media in reply.get("content", {}).items()
            if "json" in kind
        }
        for event, said in document["webhooks"].items():
            bodies[event] = said["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert len(bodies) > 500
        assert [it for it, schema in bodies.items() if not _has_properties(schema, document)] == []

    async def test_every_word_in_a_path_is_a_parameter(self, document: Json) -> None:
        for _, path, said in operations(document):
            words = {part[1:-1] for part in path.split("/") if part.startswith("{")}
            assert {it["name"] for it in said["parameters"] if it["in"] == "path"} == words

    async def test_it_is_the_same_each_time(self, api: httpx.AsyncClient, document: Json) -> None:
        assert (await api.get("/openapi.json")).json() == document

    async def test_a_problem_has_what_the_document_promises(
        self, api: httpx.AsyncClient, document: Json
    ) -> None:
        promised = document["components"]["schemas"]["Problem"]
        problem = (await api.post("/api/instances", json={})).json()
        assert set(promised["required"]) <= problem.keys() <= promised["properties"].keys()


@dataclass(frozen=True)
class Sent:
    """A request as it was made up."""

    method: str
    url: str
    params: dict[str, str]
    headers: dict[str, str]
    body: bytes | None


def requests(
    method: str, path: str, said: Json, ids: dict[str, str], document: Json
) -> st.SearchStrategy[Sent]:
    """Return requests for one operation, good and bad."""
    known = [ids.get(it["name"], "nobody") for it in said["parameters"] if it["in"] == "path"]
    strange = NASTY.filter(bool) | st.text(min_size=1, max_size=8) | st.sampled_from([*ids.values()])
    word = st.sampled_from(known or ["-"]) | strange
    url = st.builds(lambda it: _filled(path, it), word)
    queries, headers = {}, {}
    for it in said["parameters"]:
        values = fitting(it["schema"], document).map(_plain)
        if it["in"] == "query":
            queries[it["name"]] = values | NASTY
        elif it["in"] == "header":
            headers[it["name"]] = values | st.sampled_from(["k1", "x" * 256, "a b"])
    media = said.get("requestBody", {}).get("content", {}).get("application/json")
    body: st.SearchStrategy[bytes | None] = st.none()
    if media is not None:
        schema = media["schema"]
        bodies = fitting(schema, document) | unfitting(schema, document)
        body = bodies.map(lambda it: json.dumps(it).encode()) | st.binary(max_size=20)
    return st.builds(
        Sent,
        st.just(method),
        url,
        st.fixed_dictionaries({}, optional=queries),
        st.fixed_dictionaries({}, optional=headers),
        body,
    )


def _plain(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _filled(path: str, word: str) -> str:
    word = quote(word.encode("utf-8", "surrogatepass"), safe="")
    return "/".join(word if part.startswith("{") else part for part in path.split("/"))


class Held:
    """Holds replies against the document, and what we remember against what it was."""

    def __init__(self, api: httpx.AsyncClient, herd: Herd):
        self._api = api
        self._herd = herd

    async def check(self, sent: Sent, said: Json) -> None:
        before = self._counts()
        reply = await self._api.request(
            sent.method, sent.url, params=sent.params, headers=sent.headers, content=sent.body
        )
        assert reply.status_code < 500, reply.text
        assert str(reply.status_code) in said["responses"], reply.text
        if str(reply.status_code) == NO_CONTENT:
            assert reply.content == b""
            return
        promised = said["responses"][str(reply.status_code)]["content"]
        assert reply.headers["content-type"].split(";")[0] in promised
        if reply.status_code >= 400:
            assert reply.json()["status"] == reply.status_code
            assert self._counts() == before
        elif "application/json" in promised:
            assert isinstance(reply.json(), dict)

    def _counts(self) -> list[int]:
        return list(self._herd.database._read(lambda connection: connection.execute(COUNTS).one()))


async def some_of_everything(api: httpx.AsyncClient, herd: Herd, plane: Plane) -> dict[str, str]:
    """Return the id of something for each word in a path."""
    endpoint = (await api.post("/api/webhooks/endpoints", json={"url": "https://example.com/hook"})).json()
    made = (await api.post("/api/instances", json=GOOD)).json()
    await herd.settle(await herd.get(made["id"]))
    stopped = (await api.post(f"/api/instances/{made['id']}/stop")).json()
    jobs = (await api.get("/api/jobs")).json()["jobs"]
    key = await make_key(plane, "read")
    await api.put("/api/secrets/hf", json={"value": "of no use"})
    deliveries = (await api.get("/api/webhooks/deliveries")).json()["deliveries"]
    return {
        "id_or_name": made["id"],
        "endpoint_id": endpoint["id"],
        "operation_id": stopped["operationId"],
        "job_id": jobs[0]["id"],
        "delivery_id": deliveries[0]["id"],
        "key_id": key.key.id,
        "template_id": "101",
        "name": "hf",
    }


async def test_every_field_may_be_wrong_in_every_way(
    api: httpx.AsyncClient, herd: Herd, plane: Plane, document: Json
) -> None:
    ids = await some_of_everything(api, herd, plane)
    held, tried = Held(api, herd), 0
    for method, path, said in operations(document):
        names = [it["name"] for it in said["parameters"] if it["in"] == "path"]
        if content := said.get("requestBody", {}).get("content"):
            url = _filled(path, ids[names[0]] if names else "")
            schema = resolved(content["application/json"]["schema"]["$ref"], document)
            for body in each_field_wrong(schema):
                await held.check(Sent(method, url, {}, {}, json.dumps(body).encode()), said)
                tried += 1
    assert tried > 500


@pytest.mark.parametrize("router", ROUTERS, ids=lambda router: router.routes[0].path)
async def test_whatever_is_sent_the_reply_is_as_documented(
    router: Any, api: httpx.AsyncClient, herd: Herd, plane: Plane, document: Json
) -> None:
    ids = await some_of_everything(api, herd, plane)
    held, loop = Held(api, herd), asyncio.get_running_loop()

    def try_one(method: str, path: str) -> None:
        said = document["paths"][path][method.lower()]

        @settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None)
        @given(requests(method, path, said, ids, document))
        def as_documented(sent: Sent) -> None:
            asyncio.run_coroutine_threadsafe(held.check(sent, said), loop).result(30)

        as_documented()

    for route in router.routes:
        (method,) = route.methods
        if route.path == ENDLESS:
            continue
        # Hypothesis drives, and it does not know how to wait.
        await asyncio.to_thread(try_one, method, route.path)
