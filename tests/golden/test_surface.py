"""What there is: routes with their replies, metrics with their types; and that all of it is recorded."""

from __future__ import annotations

import re
from pathlib import Path

import httpx

from tests.entrypoints.http.conftest import GOOD, KEY
from tests.golden.recording import RECORDED, Recording
from tests.support.herd import Herd

STORY = re.compile(r"^async def test_(?!every_)(\w+)", re.MULTILINE)
ASKED = re.compile(r"^(GET|POST|PUT|PATCH|DELETE) (/[^? \n]*)", re.MULTILINE)
MINE = {"Authorization": f"Bearer {KEY}"}


async def test_routes(http: httpx.AsyncClient, recording: Recording) -> None:
    paths = (await http.get("/openapi.json")).json()["paths"]
    for path, methods in sorted(paths.items()):
        for method, operation in sorted(methods.items()):
            recording.add(f"{method.upper()} {path}: {', '.join(sorted(operation['responses']))}")
    recording.compare()


async def test_metrics(http: httpx.AsyncClient, herd: Herd, recording: Recording) -> None:
    await http.post("/api/instances", json=GOOD, headers=MINE)
    await herd.settle(await herd.launch("other"))
    page = await http.get("/metrics", headers=MINE)
    recording.add(f"GET /metrics: {page.headers['content-type']}")
    recording.add(*sorted(it for it in page.text.split("\n") if it.startswith("# TYPE gpuherd_")))
    others = {it.split()[2].split("_")[0] for it in page.text.split("\n") if it.startswith("# TYPE ")}
    recording.add(f"families: {', '.join(sorted(others))}")
    recording.compare()


async def test_every_route_is_recorded(http: httpx.AsyncClient) -> None:
    paths = (await http.get("/openapi.json")).json()["paths"]
    # What has no parameter first: `/api/jobs/stats` is no job.
    routes = sorted(paths, key=lambda it: it.count("{"))
    asked = {found for file in RECORDED.glob("*.txt") for found in ASKED.findall(file.read_text())}
    met = {(method, _route(path, routes)) for method, path in asked}
    there = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    # Its names and types are recorded, not its values.
    assert there - met == {("GET", "/metrics")} - met


def test_every_recording_has_its_story() -> None:
    files = Path(__file__).parent.glob("test_*.py")
    stories = {name for file in files for name in STORY.findall(file.read_text())}
    assert {it.stem for it in RECORDED.glob("*.txt")} == stories


def _route(path: str, routes: list[str]) -> str | None:
    return next((it for it in routes if re.fullmatch(re.sub(r"{\w+}", "[^/]+", it), path)), None)
