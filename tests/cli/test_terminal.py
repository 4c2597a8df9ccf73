"""The command line on a real terminal: what people see, and what a stranger's name cannot do to it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.cells import cell_len

from tests.cli.support import DROPPED, Answer, FakeApi, SeenRequest, accepted, details, problem
from tests.cli.terminal import RICH, Terminal, terminal

pytestmark = pytest.mark.processes

UP = ("up", "--yes", "--gpu", "4090", "--template", "t1", "--name", "train-1")
EVIL = "evil\x1b]0;owned\x07\x1b[2J\u202e[red]x\rhidden\nline"
SEEN = r"evil\x1b]0;owned\x07\x1b[2J\u202e[red]x\rhidden\nline"


def live(status: str = "creating", **more: Any) -> dict[str, Any]:
    """An instance whose times fit to the real clock, which rules here."""
    now = datetime.now(UTC)
    times = {
        "createdAt": now.isoformat(),
        "estimatedReadyTime": (now + timedelta(minutes=3)).isoformat(),
    }
    return details(status, **(times | more))


ACCEPTED = Answer(accepted(), 201)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened at the end, so that no answer is held for ever."""
    event = threading.Event()
    yield event
    event.set()


def assert_tame(screen: Terminal, columns: int = 80) -> None:
    """Nothing but rich's own sequences, and no line that the terminal would have to break."""
    rest = RICH.sub("", screen.raw).replace("\r\n", "\n").replace("\r", "")
    assert all(char == "\n" or char.isprintable() for char in rest), repr(rest)
    assert all(cell_len(line) <= columns for line in screen.lines), screen.lines


def test_the_stages_are_followed_live(api: FakeApi) -> None:
    ready = live(
        "ready",
        cloudInstanceId="c1",
        connectionDetails={"ssh": "ssh root@example.com -p 2222"},
        portMappings=[{"port": 8080, "endpoint": "https://example.com/8080", "type": "http"}],
    )
    starting = live("starting", cloudInstanceId="c1", statusReason="pulling the image")
    api.script(ACCEPTED, live(), starting, live("running", cloudInstanceId="c1"), ready)
    with terminal(api.url, *UP) as screen:
        assert screen.end() == 0
    for words in ("about 3 min left", "pulling the image", "·  starting", "·  ready"):
        assert words in screen.text
    title, facts, *stages, ssh, port, cost, advice = screen.display
    assert (title, facts) == ("train-1  inst_1", "RTX 4090 24GB · CN-HK-01 · $0.35/h spot")
    assert [line.split()[:2] for line in stages] == [
        ["✓", "accepted"],
        ["✓", "renting"],
        ["✓", "starting"],
        ["✓", "running"],
        ["✓", "ready"],
    ]
    assert ssh == "ssh        ssh root@example.com -p 2222"
    assert port == "port 8080  https://example.com/8080"
    assert cost == "No lease is set. This instance costs $8.40 per day until you stop it."
    assert advice == "set one with: gpuherd lease train-1 +8h"
    assert "\x1b[?25h" in screen.raw.rpartition("\x1b[?25l")[2]
    assert_tame(screen)


def test_times_run_while_the_server_is_silent(api: FakeApi, gate: threading.Event) -> None:
    def held(_: SeenRequest) -> Answer:
        gate.wait(20)
        return Answer(live("ready"))

    api.script(ACCEPTED, held)
    with terminal(api.url, *UP) as screen:
        for elapsed in ("renting   0 s", "renting   1 s"):
            screen.until(elapsed)
        gate.set()
        assert screen.end() == 0


@pytest.mark.parametrize("columns", [40, 20])
def test_a_narrow_terminal_gets_narrow_lines(api: FakeApi, columns: int) -> None:
    long = {"name": "n" * 90, "statusReason": "because " * 20, "id": "inst_" + "1" * 26}
    api.script(ACCEPTED, live(**long), live("starting", **long), live("ready", **long))
    with terminal(api.url, *UP, columns=columns) as screen:
        assert screen.end() == 0
    assert_tame(screen, columns)
    api.script({"instances": [live(**long), live("health_checking")], "total": 2})
    with terminal(api.url, "ls", columns=columns) as screen:
        assert screen.end() == 0
    assert_tame(screen, columns)
    assert len(screen.text.strip().splitlines()) == 3
    assert "NAME" in screen.text


def test_what_is_waited_for_is_said_to_its_end(api: FakeApi) -> None:
    reason = f"waiting for capacity until tomorrow: {'no offer fits, ' * 6}as far as anybody can see"
    api.script(ACCEPTED, live(statusReason=reason), live("ready"))
    with terminal(api.url, *UP) as screen:
        screen.until("anybody can see")
        assert screen.end() == 0
    api.script(ACCEPTED, live(statusReason="because " * 90 + "the end"), live("ready"))
    with terminal(api.url, *UP) as screen:
        assert screen.end() == 0
    assert "…" in screen.text and "the end" not in screen.text
    assert_tame(screen)


def test_ctrl_c_detaches_and_says_how_to_come_back(api: FakeApi) -> None:
    api.script(ACCEPTED, live())
    with terminal(api.url, *UP) as screen:
        screen.until("renting")
        screen.until("inst_1")
        screen.type("\x03")
        assert screen.end() == 130
    assert "still working in the background; follow it with: gpuherd wait train-1" in screen.text
    assert "Traceback" not in screen.text
    assert "\x1b[?25h" in screen.raw.rpartition("\x1b[?25l")[2]


def test_ctrl_c_before_the_answer_says_how_to_be_sure(api: FakeApi, gate: threading.Event) -> None:
    def held(_: SeenRequest) -> Answer:
        gate.wait(20)
        return ACCEPTED

    api.script(held)
    with terminal(api.url, *UP, "--idempotency-key", "mine") as screen:
        screen.until("accepted")
        screen.type("\x03")
        assert screen.end() == 130
    assert "--idempotency-key mine" in " ".join(screen.text.split())
    assert "still working" not in screen.text


def test_a_restart_of_the_server_is_shown_and_waited_out(api: FakeApi) -> None:
    api.script(ACCEPTED, live(), DROPPED, DROPPED, live("ready"))
    with terminal(api.url, *UP) as screen:
        screen.until("renting")
        api.stop()
        screen.until("server not reachable, retrying")
        api.script(live("ready"))
        api.start()
        assert screen.end() == 0
    assert "✓  ready" in screen.text


def test_a_name_cannot_command_the_terminal(api: FakeApi) -> None:
    evil: dict[str, Any] = {
        "name": EVIL,
        "statusReason": EVIL,
        "region": EVIL,
        "productName": EVIL,
        "labels": {EVIL: EVIL},
        "connectionDetails": {"ssh": EVIL, EVIL: EVIL},
        "lastError": {"code": EVIL, "message": EVIL},
    }
    api.script({"instances": [live("ready", **evil)], "total": 1})
    with terminal(api.url, "ls", columns=200) as screen:
        assert screen.end() == 0
    assert_tame(screen, 200)
    assert r"evil\x1b]0;owned" in screen.text
    for command in (("show", "x"), ("wait", "x"), UP):
        api.script(live("ready", **evil))
        with terminal(api.url, *command, columns=400) as screen:
            assert screen.end() == 0
        assert_tame(screen, 400)
        assert SEEN in screen.text
    api.script(live("failed", **evil))
    with terminal(api.url, "wait", "x", columns=400) as screen:
        assert screen.end() == 1
    assert_tame(screen, 400)


def test_an_error_cannot_command_the_terminal(api: FakeApi) -> None:
    regions = [{"region": EVIL, "offers": [{"productName": EVIL, "reason": EVIL}], "reason": EVIL}]
    api.script(
        problem(
            409,
            EVIL,
            EVIL,
            detail=EVIL,
            requestId=EVIL,
            errors=[{"field": EVIL, "code": EVIL, "message": EVIL}],
            details={"regions": regions, "candidates": [EVIL, {"id": EVIL, "name": EVIL}]},
        )
    )
    with terminal(api.url, "show", "x", columns=400) as screen:
        assert screen.end() == 5
    assert_tame(screen, 400)
    assert screen.text.count(SEEN) >= 9


def test_no_capacity_is_explained_region_by_region(api: FakeApi) -> None:
    regions = [
        {"region": "CN-HK-01", "offers": [{"productName": "RTX 4090 24GB", "reason": "not available"}]},
        {"region": "AS-SGP-02", "reason": "no such product here"},
    ]
    code = "NO_OPTIMAL_PRODUCT_ANY_REGION"
    api.script(
        problem(409, code, "no capacity", detail="none", details={"regions": regions}, requestId="r-1")
    )
    with terminal(api.url, *UP) as screen:
        assert screen.end() == 6
    text = screen.text
    rows = [line.split() for line in text.splitlines()]
    assert ["CN-HK-01", "RTX", "4090", "24GB", "not", "available"] in rows
    assert ["AS-SGP-02", "no", "such", "product", "here"] in rows
    order = [
        text.index(words) for words in ("error: no capacity", "none", "WHY NOT", "try: ", "request id: r-1")
    ]
    assert order == sorted(order)
    # The picture of a create that was refused is wiped away.
    assert screen.display[0].startswith("error: no capacity")


def test_each_wrong_field_is_told_once(api: FakeApi) -> None:
    wrong = [{"field": name, "code": "X", "message": f"{name} is wrong"} for name in ("gpuNum", "name")]
    api.script(problem(400, "X", detail="gpuNum is wrong", errors=wrong[:1]))
    with terminal(api.url, *UP) as screen:
        assert screen.end() == 2
    assert "\n".join(screen.display).count("gpuNum is wrong") == 1
    api.script(problem(400, "X", detail="two things", errors=wrong))
    with terminal(api.url, *UP) as screen:
        assert screen.end() == 2
    assert screen.display[2:4] == ["  gpuNum: gpuNum is wrong", "  name: name is wrong"]


def test_colours_are_left_out_on_request(api: FakeApi) -> None:
    api.script({"instances": [live("ready")], "total": 1})
    with terminal(api.url, "ls") as screen:
        screen.end()
    assert "\x1b[32m" in screen.raw
    with terminal(api.url, "ls", env={"NO_COLOR": "1"}) as screen:
        screen.end()
    assert "\x1b[32m" not in screen.raw


def test_a_dumb_terminal_gets_plain_lines(api: FakeApi) -> None:
    api.script(ACCEPTED, live(), live("ready"))
    with terminal(api.url, *UP, env={"TERM": "dumb"}) as screen:
        assert screen.end() == 0
    assert "\x1b" not in screen.raw
    assert "0 s  renting" in screen.text
    assert "(about 3 min left)" in " ".join(screen.text.split())


def test_a_terminal_without_unicode_gets_escapes_and_no_traceback(api: FakeApi) -> None:
    api.script(ACCEPTED, live(name="训练"), live("ready", name="训练"))
    with terminal(api.url, *UP, env={"PYTHONIOENCODING": "ascii"}) as screen:
        assert screen.end() == 0
    assert r"\u8bad" in screen.text
    assert "+  ready" in screen.text


def test_json_on_a_terminal_is_json_with_plain_progress(api: FakeApi) -> None:
    api.script(ACCEPTED, live(), live("ready"))
    with terminal(api.url, *UP, "--json") as screen:
        assert screen.end() == 0
    assert "\x1b" not in screen.raw.replace("\x1b[0m", "")
    assert '"status": "ready"' in screen.text


def test_the_pages_of_an_instance_a_job_and_the_statistics(api: FakeApi) -> None:
    api.script(live("ready", gpuNum=2, rootfsSize=60, labels={"team": "a"}, healthCheck={"status": "passed"}))
    with terminal(api.url, "show", "train-1") as screen:
        assert screen.end() == 0
    for words in (
        "gpu      2 × RTX 4090 24GB",
        "disk     60 GB",
        "labels   team=a",
        "health   passed",
    ):
        assert words in screen.text
    # Moments ago, however busy the machine is.
    assert re.search(r"created  +(just now|\d+ s ago)", screen.text)
    job = {
        "id": 7,
        "type": "send_webhook",
        "status": "FAILED",
        "attempts": 3,
        "maxAttempts": 10,
        "error": "no",
    }
    api.script({"jobs": [job], "total": 9, "nextCursor": "x"})
    with terminal(api.url, "jobs") as screen:
        assert screen.end() == 0
    assert "3/10" in screen.text
    assert "1 of 9; the rest with --all" in screen.text
    api.script(job | {"payload": {"a": EVIL}})
    with terminal(api.url, "jobs", "show", "7") as screen:
        assert screen.end() == 0
    assert "payload" in screen.text
    assert_tame(screen)
    api.script({"pending": 4, "total": 4, "byType": {"send_webhook": 3, "monitor_startup": 1}})
    with terminal(api.url, "jobs", "stats") as screen:
        assert screen.end() == 0
    for words in ("pending          4", "send_webhook     3", "monitor_startup  1"):
        assert words in screen.text


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("ls",), "no instances yet"),
        (("ls", "--name", "x"), "no instance is like that"),
        (("jobs",), "no jobs"),
    ],
)
def test_an_empty_list_says_so(api: FakeApi, argv: tuple[str, ...], words: str) -> None:
    api.script({"instances": [], "jobs": [], "total": 0})
    with terminal(api.url, *argv) as screen:
        assert screen.end() == 0
    assert words in screen.text


def test_not_waiting_says_how_to_follow(api: FakeApi) -> None:
    api.script(ACCEPTED)
    with terminal(api.url, *UP, "--no-wait") as screen:
        assert screen.end() == 0
    assert "train-1 is accepted as inst_1" in screen.text
    assert "gpuherd wait train-1" in screen.text
