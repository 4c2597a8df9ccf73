"""`gpuherd webhooks`, piped."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.cli.support import NOW, Cli, FakeApi, details, problem

BASE = "/api/webhooks"


def endpoint(**more: Any) -> dict[str, Any]:
    base = {"id": "ep_1", "url": "https://example.com/?***", "enabled": True, "events": None}
    return base | {"createdAt": NOW.isoformat(), "secretKnown": True} | more


def delivery(**more: Any) -> dict[str, Any]:
    return {"id": "msg_1", "type": "instance.ready", "state": "dead", "tries": 10} | more


def test_the_endpoints_are_what_the_api_says(cli: Cli, api: FakeApi) -> None:
    api.script({"endpoints": [endpoint()], "total": 1})
    listed = json.loads(cli("webhooks", "ls").stdout)
    assert listed["endpoints"] == [endpoint()]
    assert cli("webhooks", "ls", "-q").stdout == "ep_1\n"
    assert api.seen[0].path == f"{BASE}/endpoints"


def test_an_endpoint_is_added_and_its_secret_told(cli: Cli, api: FakeApi) -> None:
    api.script(endpoint(secret="whsec_x"))
    words = ("--event", "instance.ready", "--event", "instance.failed", "--label", "ops")
    told = json.loads(cli("webhooks", "add", "https://example.com/", *words).stdout)
    assert told["secret"] == "whsec_x"
    (seen,) = api.seen
    assert (seen.method, seen.path) == ("POST", f"{BASE}/endpoints")
    assert seen.body == {
        "url": "https://example.com/",
        "events": ["instance.ready", "instance.failed"],
        "label": "ops",
    }
    cli("webhooks", "add", "https://example.com/")
    assert api.seen[1].body == {"url": "https://example.com/"}


def test_an_endpoint_for_people_has_a_kind_and_no_secret(cli: Cli, api: FakeApi) -> None:
    api.script(endpoint(kind="slack", secret=None))
    told = json.loads(cli("webhooks", "add", "https://hooks.slack.com/x", "--kind", "slack").stdout)
    assert told == endpoint(kind="slack")
    (seen,) = api.seen
    assert seen.body == {"url": "https://hooks.slack.com/x", "kind": "slack"}
    assert cli("webhooks", "add", "mailto:a@example.com", "--kind", "slack", "-q").stdout == "ep_1\n"


def test_an_address_that_is_a_secret_need_not_be_in_the_list_of_processes(cli: Cli, api: FakeApi) -> None:
    api.script(endpoint(kind="slack", secret=None))
    cli("webhooks", "add", "-", "--kind", "slack", typed="https://hooks.slack.com/x\n")
    (seen,) = api.seen
    assert seen.body == {"url": "https://hooks.slack.com/x", "kind": "slack"}


@pytest.mark.parametrize(
    ("argv", "method", "path"),
    [
        (("rm", "ep_1/x"), "DELETE", "/endpoints/ep_1%2Fx"),
        (("rotate", "ep_1"), "POST", "/endpoints/ep_1/rotate"),
        (("enable", "ep_1"), "POST", "/endpoints/ep_1/enable"),
        (("show", "ep_1"), "GET", "/endpoints/ep_1"),
        (("show", "msg_1"), "GET", "/deliveries/msg_1"),
        (("replay", "msg_1"), "POST", "/deliveries/msg_1/replay"),
    ],
)
def test_each_order_reaches_the_server(
    cli: Cli, api: FakeApi, argv: tuple[str, ...], method: str, path: str
) -> None:
    told = endpoint(secret="whsec_x") if "rotate" in argv else endpoint(type="instance.ready", state="dead")
    api.script(told)
    result = cli("webhooks", *argv)
    assert (result.exit_code, json.loads(result.stdout)) == (0, told)
    assert [(it.method, it.path) for it in api.seen] == [(method, BASE + path)]
    api.script(problem(404, "WEBHOOK_ENDPOINT_NOT_FOUND"))
    assert cli("webhooks", *argv).exit_code == 4


def test_deliveries_are_filtered_by_the_server(cli: Cli, api: FakeApi) -> None:
    api.script(details(), {"deliveries": [delivery()], "total": 1, "nextCursor": None})
    words = ("--state", "dead", "--endpoint", "ep_1", "--type", "instance.ready", "--instance", "train-1")
    assert cli("webhooks", "deliveries", *words, "-q").stdout == "msg_1\n"
    assert dict(api.seen[1].query) == {
        "limit": "50",
        "state": "dead",
        "endpointId": "ep_1",
        "type": "instance.ready",
        "instanceId": "inst_1",
    }


def test_a_replay_since_a_while_ago_says_the_moment(cli: Cli, api: FakeApi) -> None:
    api.script({"count": 3})
    assert json.loads(cli("webhooks", "replay", "--since", "2h").stdout) == {"count": 3}
    since = (NOW - timedelta(hours=2)).isoformat()
    assert api.seen[0].body == {"since": since, "state": "failed"}
    cli("webhooks", "replay", "--since", "2h", "--dead", "--endpoint", "ep_1")
    assert api.seen[1].body == {"since": since, "state": "dead", "endpointId": "ep_1"}


def test_a_test_that_is_not_accepted_fails(cli: Cli, api: FakeApi) -> None:
    api.script({"id": "msg_1", "accepted": True, "status": 200})
    assert cli("webhooks", "test", "https://example.com/").exit_code == 0
    api.script({"id": "msg_1", "accepted": False, "status": None, "outcome": "tls"})
    result = cli("webhooks", "test", "ep_1")
    assert (result.exit_code, json.loads(result.stdout)["outcome"]) == (1, "tls")
    assert [it.body for it in api.seen] == [{"url": "https://example.com/"}, {"endpointId": "ep_1"}]


@pytest.mark.parametrize(
    "argv",
    [
        ("replay",),
        ("replay", "msg_1", "--since", "2h"),
        ("replay", "--since", "soon"),
        ("deliveries", "--state", "odd"),
        ("add",),
        ("listen", "--secret", "whsec_?"),
        ("listen", "--port", "70000"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(cli: Cli, api: FakeApi, argv: tuple[str, ...]) -> None:
    assert cli("webhooks", *argv).exit_code == 2
    assert api.seen == []
