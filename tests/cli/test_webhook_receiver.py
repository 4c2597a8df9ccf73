"""`gpuherd webhooks` on a real terminal, and its receiver as a process of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks.webhooks import Webhook

from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_signing import Signer
from tests.cli.support import FakeApi
from tests.cli.terminal import DRIVER, Terminal, terminal
from tests.cli.test_webhooks import delivery, endpoint

pytestmark = pytest.mark.processes

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"type":"instance.ready","data":{"name":"train-\\u001b[2J1","status":"ready"}}'
WHERE = re.compile(r"http://127\.0\.0\.1:(\d+)/")


def send(port: int, headers: dict[str, str], body: bytes = BODY) -> int:
    """Post to the receiver and return its status."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/hook", body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def signed(age: timedelta = timedelta(0), body: bytes = BODY) -> dict[str, str]:
    return Signer([Secret(SECRET)]).headers("msg_1", body, datetime.now(UTC) - age)


def port_of(screen: Terminal) -> int:
    screen.until("Ctrl-C ends it")
    found = WHERE.search(screen.text)
    assert found is not None
    return int(found[1])


def test_what_arrives_is_shown_with_the_verdict_on_its_signature() -> None:
    with terminal(
        "http://unused", "webhooks", "listen", "--port", "0", "--secret", SECRET, columns=150
    ) as it:
        port = port_of(it)
        assert send(port, signed()) == 204
        it.until("valid")
        assert send(port, signed(), BODY + b" ") == 401
        it.until("no signature fits")
        assert send(port, signed(timedelta(minutes=6))) == 401
        it.until("the timestamp is too old")
        assert send(port, {}, b"hello") == 401
        it.until("a signature header is missing")
        it.type("\x03")
        assert it.end() == 0
    assert r"train-\x1b[2J1" in it.text
    assert "4 received" in it.text
    assert "Traceback" not in it.text


@contextmanager
def piped(*argv: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(DRIVER), "http://unused", "webhooks", "listen", "--port", "0", *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path), "LC_ALL": "C.UTF-8"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_in_a_pipe_each_event_is_a_line_of_json_at_once() -> None:
    with piped("--secret", SECRET) as process:
        assert process.stderr is not None and process.stdout is not None
        found = WHERE.search(process.stderr.readline())
        assert found is not None
        moment = datetime.now(UTC)
        signature = Webhook(SECRET).sign("msg_2", moment, BODY.decode())
        headers = {
            "webhook-id": "msg_2",
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": signature,
        }
        assert send(int(found[1]), headers) == 204
        line = json.loads(process.stdout.readline())
        assert (line["id"], line["verified"], line["problem"]) == ("msg_2", True, None)
        assert line["event"] == json.loads(BODY)
        assert send(int(found[1]), headers, b"\xff") == 401
        line = json.loads(process.stdout.readline())
        assert (line["verified"], line["event"]) == (False, None)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_without_a_secret_nothing_is_called_valid() -> None:
    with piped() as process:
        assert process.stderr is not None and process.stdout is not None
        found = WHERE.search(process.stderr.readline())
        assert found is not None
        assert send(int(found[1]), signed()) == 204
        assert json.loads(process.stdout.readline())["verified"] is None


def test_a_port_that_is_taken_is_told_plainly(api: FakeApi) -> None:
    with terminal(api.url, "webhooks", "listen", "--port", str(api.port)) as screen:
        assert screen.end() == 1
    assert f"port {api.port} cannot be used" in screen.text
    assert "Traceback" not in screen.text


def test_a_new_secret_is_shown_with_a_warning(api: FakeApi) -> None:
    api.script(endpoint(secret=SECRET))
    with terminal(api.url, "webhooks", "add", "https://example.com/") as screen:
        assert screen.end() == 0
    assert SECRET in screen.text
    assert "never shown again" in screen.text


def test_tables_for_people(api: FakeApi) -> None:
    endpoints = [endpoint(), endpoint(id="ep_2", enabled=False, events=["instance.ready"], label="\x1b[2J")]
    api.script({"endpoints": endpoints, "total": 2})
    with terminal(api.url, "webhooks", "ls", columns=120) as screen:
        assert screen.end() == 0
    for words in ("ep_1", "enabled", "all", "disabled", "instance.ready", r"\x1b[2J"):
        assert words in screen.text
    api.script({"deliveries": [delivery(lastError="http_5xx: the receiver answered 500")], "total": 1})
    with terminal(api.url, "webhooks", "deliveries", columns=60) as screen:
        assert screen.end() == 0
    assert "dead" in screen.text and "http_5xx" in screen.text
    tries = [{"at": "2026-01-01T00:00:00Z", "outcome": "tls", "status": None, "durationMs": 12}]
    api.script(delivery(log=tries))
    with terminal(api.url, "webhooks", "show", "msg_1") as screen:
        assert screen.end() == 0
    assert "tls" in screen.text and "12 ms" in screen.text
    api.script({"id": "msg_2", "accepted": False, "outcome": "dns", "error": "no such host", "durationMs": 3})
    with terminal(api.url, "webhooks", "test", "ep_1") as screen:
        assert screen.end() == 1
    assert "not accepted (dns) in 3 ms: no such host" in screen.text
