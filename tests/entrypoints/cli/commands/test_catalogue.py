"""`gpuherd offers`, `templates` and `regions`."""

from __future__ import annotations

import json

import pytest

from tests.entrypoints.cli.support import Cli, FakeApi, problem
from tests.entrypoints.cli.terminal import terminal

OFFERS = {
    "products": [
        {
            "productId": "p1",
            "productName": "RTX 4090 24GB",
            "available": True,
            "gpuHourlyPrice": "0.35",
            "cpuPerGpu": 16,
            "memoryPerGpu": 62,
            "regions": [
                {"region": "CN-HK-01", "available": True, "stock": "high", "gpuHourlyPrice": "0.35"},
                {"region": "AS-SGP-02", "available": False, "stock": "none", "gpuHourlyPrice": "0.36"},
            ],
        }
    ],
    "total": 1,
}
TEMPLATES = {
    "templates": [
        {
            "id": "101",
            "name": "py\x1b[2Jtorch",
            "imageUrl": "docker.io/pytorch:2",
            "ports": [{"port": 8888, "type": "http"}],
            "problem": None,
        },
        {"id": "102", "name": "broken", "imageUrl": "", "ports": [], "problem": "it names no image"},
    ],
    "total": 2,
}
REGIONS = {
    "regions": [
        {"code": "CN-HK-01", "label": "Hong Kong", "clusterId": "cn-hongkong-1", "gpuNames": ["RTX 4090"]}
    ],
    "total": 1,
}


@pytest.mark.parametrize(
    ("verb", "path", "body", "ids"),
    [
        ("offers", "/api/products", OFFERS, "p1\n"),
        ("templates", "/api/templates", TEMPLATES, "101\n102\n"),
        ("regions", "/api/regions", REGIONS, "CN-HK-01\n"),
    ],
)
def test_a_pipe_gets_what_the_api_says(
    cli: Cli, api: FakeApi, verb: str, path: str, body: dict[str, object], ids: str
) -> None:
    api.script(body)
    assert json.loads(cli(verb).stdout) == body
    assert (api.seen[0].path, api.seen[0].query) == (path, [])
    assert cli(verb, "--quiet").stdout == ids


def test_filters_reach_the_server_in_its_words(cli: Cli, api: FakeApi) -> None:
    api.script(OFFERS)
    assert cli("offers", "--gpu", "4090", "--billing", "on-demand").exit_code == 0
    assert api.seen[0].query == [("productName", "4090"), ("billingMode", "onDemand")]


@pytest.mark.parametrize("verb", ["offers", "templates", "regions"])
def test_a_cloud_that_cannot_be_asked_is_told(cli: Cli, api: FakeApi, verb: str) -> None:
    api.script(problem(503, "CIRCUIT_BREAKER_OPEN", retryAfter=7))
    result = cli(verb)
    assert result.exit_code == 8
    assert "try again in 7 s" in result.stderr


@pytest.mark.processes
def test_people_see_a_line_for_each_region(api: FakeApi) -> None:
    api.script(OFFERS)
    with terminal(api.url, "offers") as screen:
        assert screen.end() == 0
    assert [line.split() for line in screen.display] == [
        ["GPU", "REGION", "PRICE/GPU", "STOCK", "CPU", "MEMORY"],
        ["RTX", "4090", "24GB", "CN-HK-01", "$0.35/h", "high", "16", "62", "GB"],
        ["RTX", "4090", "24GB", "AS-SGP-02", "$0.36/h", "sold", "out", "16", "62", "GB"],
    ]


@pytest.mark.processes
def test_people_see_templates_with_their_problems_and_regions_with_their_names(api: FakeApi) -> None:
    api.script(TEMPLATES)
    with terminal(api.url, "templates", columns=120) as screen:
        assert screen.end() == 0
    assert r"py\x1b[2Jtorch" in screen.text
    assert "8888/http" in screen.text
    assert "it names no image" in screen.text
    api.script(REGIONS)
    with terminal(api.url, "regions") as screen:
        assert screen.end() == 0
    assert screen.display[1].split() == ["CN-HK-01", "Hong", "Kong", "cn-hongkong-1", "RTX", "4090"]


@pytest.mark.processes
def test_an_empty_catalogue_says_so(api: FakeApi) -> None:
    api.script({"products": [], "total": 0})
    with terminal(api.url, "offers", "--gpu", "x") as screen:
        assert screen.end() == 0
    assert "nothing is sold under this name" in screen.text
