"""Log lines: none is lost, warnings do not wait, and no secret gets out."""

from __future__ import annotations

import io
import json
import threading
from datetime import UTC, datetime

from gpuherd.adapters.logs import BufferedLines, Redactor, RequestLogLines, json_line
from gpuherd.domain.access.secret import Secret

# Longer than any test: what comes out then, somebody has brought out.
NEVER_S = 3600.0


def test_a_warning_brings_out_what_was_said_before_it_in_order() -> None:
    stream = io.StringIO()
    lines = BufferedLines(stream, NEVER_S)
    lines.info("one")
    lines.debug("two")
    assert stream.getvalue() == ""
    lines.warning("three")
    assert stream.getvalue() == "one\ntwo\nthree\n"


def test_lines_come_out_by_themselves() -> None:
    written = threading.Event()

    class Stream(io.StringIO):
        def flush(self) -> None:
            written.set()

    stream = Stream()
    BufferedLines(stream, 0.0).info("one")
    assert written.wait(20)
    assert stream.getvalue() == "one\n"


def test_no_line_is_lost_or_doubled_when_many_write_at_once() -> None:
    stream = io.StringIO()
    lines = BufferedLines(stream, 0.0)

    def say(who: int) -> None:
        for n in range(200):
            (lines.warning if n % 50 == 0 else lines.info)(f"{who}-{n}")

    threads = [threading.Thread(target=say, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines.flush_lines()
    expected = sorted(f"{who}-{n}" for who in range(8) for n in range(200))
    assert sorted(stream.getvalue().splitlines()) == expected


def test_a_secret_that_begins_like_another_leaves_no_rest() -> None:
    redactor = Redactor([Secret("secret-key"), Secret("secret-key-of-admin"), None])
    assert redactor.redact("a secret-key-of-admin and a secret-key") == "a *** and a ***"


def test_a_secret_is_found_in_the_form_that_json_gives_it() -> None:
    secret = 'quo"te\\back-ü'
    event = {"deep": {"a": [secret]}, "text": f"x{secret}y", "odd": Secret("hidden by itself")}
    line = Redactor([Secret(secret)]).redact(json_line(None, "info", event))
    assert json.loads(line) == {"deep": {"a": ["***"]}, "text": "x***y", "odd": "***"}


def test_a_line_about_a_request_is_json_whatever_the_client_wrote() -> None:
    stream = io.StringIO()
    buffered = BufferedLines(stream, NEVER_S)
    note = RequestLogLines(buffered, Redactor([Secret("a-secret-value")]), enabled=True)
    at = datetime(2026, 1, 2, tzinfo=UTC)
    note("GET", '/a"b\n\x1b[2J\u2028/a-secret-value', None, 0.25, "req_1", "c.1", at)
    RequestLogLines(buffered, Redactor([]), enabled=False)("GET", "/", 200, 0.25, "req_2", "c.2", at)
    buffered.flush_lines()
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line) == {
        "event": "http.request",
        "level": "info",
        "timestamp": "2026-01-02T00:00:00.000000Z",
        "request_id": "req_1",
        "correlation_id": "c.1",
        "status": None,
        "duration_ms": 0.25,
        "method": "GET",
        "path": '/a"b\n\x1b[2J\u2028/***',
    }


def test_without_secrets_nothing_is_blotted() -> None:
    assert Redactor([Secret("short"), None]).redact("short words stay") == "short words stay"
