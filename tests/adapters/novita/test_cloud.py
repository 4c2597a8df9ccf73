"""The adapter on replies that the simulator would never give."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.errors import CloudUnavailable, OutcomeUnknown, RateLimited
from tests.adapters.novita.builders import ORDER, open_cloud
from tests.adapters.novita.raw_server import Request, http, raw_server, saying
from tests.support.fake_clock import FakeClock

GARBAGE = [
    b"",
    b" ",
    b"null",
    b"true",
    b"0",
    b"ok",
    b'"5f0c9b1d2e3a4f60"',
    b'["5f0c9b1d2e3a4f60"]',
    b'[{"id": "5f0c9b1d2e3a4f60"}]',
    b"{}",
    b'{"id": ""}',
    b'{"id": " "}',
    b'{"id": null}',
    b'{"id": 6849273645281736}',
    b'{"id": true}',
    b'{"id": ["5f0c9b1d2e3a4f60"]}',
    b'{"id": {"id": "5f0c9b1d2e3a4f60"}}',
    b'{"ID": "5f0c9b1d2e3a4f60"}',
    b'{"data": {"id": "5f0c9b1d2e3a4f60"}}',
    b'{"id": "5f0c9b1d2e3a4f60", "x": NaN}',
    b'{"id": "5f0c9b1d2e3a4f60"',
    b'{"id": "5f0c9b1d2e3a4f60"} trailing',
    b"{'id': '5f0c9b1d2e3a4f60'}",
    b'{"id": "5f0c\x009b1d"}',
    b'{"id": "a\\nb"}',
    b'{"id": "' + b"x" * 300 + b'"}',
    b"<html><body><h1>502 Bad Gateway</h1></body></html>",
    b'\xff\xfe{"id": "5f0c9b1d2e3a4f60"}',
    b"[" * 50_000,
    b'{"code": 400, "reason": "INSUFFICIENT_RESOURCE", "message": "no"}',
]


@pytest.mark.proves("F7")
async def test_a_create_answered_with_garbage_may_have_rented_a_machine(subtests: pytest.Subtests) -> None:
    for body in GARBAGE:
        with subtests.test(body=body):
            async with raw_server(saying(http(200, body))) as server, open_cloud(server.base_url) as cloud:
                with pytest.raises(OutcomeUnknown):
                    await cloud.create_machine(ORDER)
            assert len(server.requests) == 1


@pytest.mark.proves("F7")
async def test_what_was_said_instead_of_an_id_is_kept_for_people():
    page = b"<h1>Under maintenance</h1>"
    async with raw_server(saying(http(200, page))) as server, open_cloud(server.base_url) as cloud:
        with pytest.raises(OutcomeUnknown) as caught:
            await cloud.create_machine(ORDER)
    assert caught.value.details == {"status": 200, "reply": "<h1>Under maintenance</h1>"}


@pytest.mark.parametrize("status", [200, 201, 202])
async def test_any_success_with_an_id_is_a_machine(status):
    answer = saying(http(status, {"id": "5f0c9b1d2e3a4f60", "more": 1}))
    async with raw_server(answer) as server, open_cloud(server.base_url) as cloud:
        assert await cloud.create_machine(ORDER) == "5f0c9b1d2e3a4f60"
    (request,) = server.requests
    assert request.target == "/gpu-instance/openapi/v1/gpu/instance/create"
    assert request.json["name"] == ORDER.name


async def test_too_many_may_be_distrusted():
    answer = saying(http(429, {"code": 429, "reason": "RATE_LIMIT_EXCEEDED", "message": "slow down"}))
    async with raw_server(answer) as server:
        async with open_cloud(server.base_url) as cloud:
            with pytest.raises(RateLimited):
                await cloud.create_machine(ORDER)
        async with open_cloud(server.base_url, trust_429=False) as cloud:
            with pytest.raises(OutcomeUnknown):
                await cloud.create_machine(ORDER)
            with pytest.raises(OutcomeUnknown):
                await cloud.start_machine("a")


@pytest.mark.parametrize("cloud_id", ["a&b=c", "a b", "a+b", "ä/ö?#%41"])
async def test_ids_are_quoted(cloud_id):
    answer = saying(http(200, {"id": cloud_id, "status": "running"}))
    async with raw_server(answer) as server, open_cloud(server.base_url) as cloud:
        assert (await cloud.get_machine(cloud_id)).cloud_id == cloud_id
    (request,) = server.requests
    assert parse_qs(urlsplit(request.target).query) == {"instanceId": [cloud_id]}


@pytest.mark.parametrize(
    "body", [{"id": "another"}, {}, {"instance": None}, {"id": 7}, {"instance": {"id": "another"}}]
)
async def test_another_machine_than_the_one_asked_for_is_no_answer(body):
    async with raw_server(saying(http(200, body))) as server, open_cloud(server.base_url) as cloud:
        with pytest.raises(CloudUnavailable):
            await cloud.get_machine("a")


async def test_a_machine_may_come_wrapped():
    answer = saying(http(200, {"instance": {"id": "a", "status": "exited"}}))
    async with raw_server(answer) as server, open_cloud(server.base_url) as cloud:
        assert (await cloud.get_machine("a")).phase is Phase.STOPPED


async def test_clusters_are_asked_for_once_in_five_minutes():
    clock = FakeClock()
    body = {"data": [{"id": "us-ca-6", "name": "US-CA-06 (California)"}]}
    async with (
        raw_server(saying(http(200, body))) as server,
        open_cloud(server.base_url, clock=clock) as cloud,
    ):
        for _ in range(3):
            await cloud.list_offers(BillingMode.SPOT)
        assert _paths(server.requests).count("/clusters") == 1
        await clock.advance(301)
        await cloud.list_regions()
        assert _paths(server.requests).count("/clusters") == 2
    assert "billingMethod=spot" in server.requests[-2].target


async def test_a_cloud_without_any_place_is_not_believed_and_not_remembered():
    bodies: list[dict[str, Any]] = [{"data": []}, {"data": [{"id": "us-ca-6", "name": "US-CA-06"}]}]

    async def answer(_: Request, writer) -> None:
        writer.write(http(200, bodies.pop(0)))

    async with raw_server(answer) as server, open_cloud(server.base_url) as cloud:
        with pytest.raises(CloudUnavailable):
            await cloud.list_regions()
        assert len(await cloud.list_regions()) == 1


@pytest.mark.parametrize("body", [{}, {"instances": "x"}, {"instances": {}}, {"total": 0}, {"data": []}])
async def test_a_list_without_its_rows_is_no_list(body):
    async with raw_server(saying(http(200, body))) as server, open_cloud(server.base_url) as cloud:
        with pytest.raises(CloudUnavailable):
            await cloud.list_machines()


async def test_a_list_is_complete_only_when_everything_fits(subtests: pytest.Subtests) -> None:
    rows: list[tuple[dict[str, Any], bool]] = [
        ({"instances": [], "total": 0}, True),
        ({"instances": [], "total": "0"}, True),
        ({"instances": None, "total": 0}, True),
        ({"instances": [{"id": "a"}], "total": "1"}, True),
        ({"instances": []}, False),
        ({"instances": [], "total": None}, False),
        ({"instances": [], "total": "many"}, False),
        ({"instances": [], "total": 3}, False),
        ({"instances": [{"id": "a"}, {"name": "no id"}], "total": 2}, False),
        ({"instances": [{"id": "a"}, 5], "total": 2}, False),
        ({"instances": [{"id": "a"}, {"id": "a"}], "total": 2}, False),
    ]
    for body, complete in rows:
        with subtests.test(body=body, complete=complete):
            async with raw_server(saying(http(200, body))) as server, open_cloud(server.base_url) as cloud:
                listing = await cloud.list_machines()
            assert listing.complete is complete
            assert {machine.cloud_id for machine in listing.machines} <= {"a"}
            assert "pageSize=1000&pageNum=1" in server.requests[0].target


def _paths(requests: list[Request]) -> list[str]:
    return [urlsplit(request.target).path.removeprefix("/gpu-instance/openapi/v1") for request in requests]
