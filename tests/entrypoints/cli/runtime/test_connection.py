"""The way to the server."""

from __future__ import annotations

import pytest

from gpuherd.entrypoints.cli.runtime.connection import Connection, Reply, connected
from gpuherd.entrypoints.cli.runtime.problems import ApiProblem, BadConfiguration, CannotConnect
from tests.entrypoints.cli.support import DROPPED, KEY, Answer, FakeApi, problem


async def ask(api: FakeApi, path: str = "/api/x", key: str | None = KEY) -> Reply:
    async with connected(Connection(api.url, key)) as client:
        return await client.get(path, [("a", "b&c"), ("a", "2")])


async def test_a_question_carries_the_key_and_its_query(api: FakeApi) -> None:
    api.script(Answer({"ok": 1}, headers={"X-Wait-Timed-Out": "true"}))
    reply = await ask(api)
    assert (reply.body, reply.headers["x-wait-timed-out"]) == ({"ok": 1}, "true")
    assert api.seen[0].headers["Authorization"] == f"Bearer {KEY}"
    assert api.seen[0].query == [("a", "b&c"), ("a", "2")]


async def test_without_a_key_no_authorization_is_sent(api: FakeApi) -> None:
    await ask(api, key=None)
    assert "Authorization" not in api.seen[0].headers


async def test_proxies_of_the_environment_are_ignored(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    await ask(api)
    assert len(api.seen) == 1


async def test_a_refusal_is_read_whole(api: FakeApi) -> None:
    api.script(
        problem(
            429,
            "RATE_LIMIT_EXCEEDED",
            "slow down",
            detail="too many",
            errors=[{"field": "x", "code": "Y", "message": "z"}, "odd"],
            requestId="req-1",
            retryAfter=7,
            details={"regions": []},
        )
    )
    with pytest.raises(ApiProblem) as caught:
        await ask(api)
    met = caught.value
    assert (met.code, met.title, met.detail, met.status) == (
        "RATE_LIMIT_EXCEEDED",
        "slow down",
        "too many",
        429,
    )
    assert (met.request_id, met.retry_after, met.details) == ("req-1", 7, {"regions": []})
    assert [error["field"] for error in met.errors] == ["x"]
    assert met.temporary


async def test_headers_say_what_the_body_leaves_out(api: FakeApi) -> None:
    api.script(Answer(b"<html>", 503, {"Retry-After": "3", "X-Request-ID": "req-2"}))
    with pytest.raises(ApiProblem) as caught:
        await ask(api)
    assert (caught.value.retry_after, caught.value.request_id, caught.value.status) == (3, "req-2", 503)


@pytest.mark.parametrize("after", ["nan", "inf", "-3", "Fri, 01 May 2026 12:00:00 GMT"])
async def test_an_odd_retry_after_is_no_retry_after(api: FakeApi, after: str) -> None:
    api.script(Answer({}, 503, {"Retry-After": after}))
    with pytest.raises(ApiProblem) as caught:
        await ask(api)
    assert caught.value.retry_after is None


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[1]", b""])
async def test_an_answer_that_is_not_ours_is_told_as_such(api: FakeApi, body: bytes) -> None:
    api.script(Answer(body))
    with pytest.raises(ApiProblem, match="UNEXPECTED_REPLY"):
        await ask(api)


async def test_a_redirect_is_not_followed(api: FakeApi) -> None:
    api.script(Answer({}, 307, {"Location": "/elsewhere"}))
    with pytest.raises(ApiProblem):
        await ask(api)
    assert len(api.seen) == 1


async def test_a_closed_door_was_surely_not_passed(api: FakeApi) -> None:
    api.stop()
    with pytest.raises(CannotConnect, match="connection refused") as caught:
        await ask(api)
    assert (caught.value.url, caught.value.sent) == (api.url, False)


async def test_a_lost_answer_may_have_been_obeyed(api: FakeApi) -> None:
    api.script(DROPPED)
    with pytest.raises(CannotConnect) as caught:
        async with connected(Connection(api.url)) as client:
            await client.post("/api/x", {})
    assert caught.value.sent


@pytest.mark.parametrize("path", ["/api/instances/a%2Fb%3Fc%2E%2E", "/api/instances/%2E%2E"])
async def test_a_quoted_path_arrives_as_it_was_quoted(api: FakeApi, path: str) -> None:
    await ask(api, path)
    assert api.seen[0].path == path


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8080", "ftp://x", "http://", "http://[", "http://u:p@host", "http://u@host"]
)
def test_a_bad_address_is_a_configuration_problem(url: str) -> None:
    with pytest.raises(BadConfiguration, match="GPUHERD_URL"):
        Connection(url)


@pytest.mark.parametrize("key", ["", "two words", "line\nbreak", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(BadConfiguration, match="GPUHERD_API_KEY") as caught:
        Connection("http://127.0.0.1:8080", key)
    assert not key or key not in str(caught.value)


def test_the_key_is_not_in_the_repr() -> None:
    assert KEY not in repr(Connection("http://127.0.0.1:8080", KEY))
