"""The command line on a real terminal, and a real server on a simulated cloud: plan, rent, leave, ask why."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import aiohttp
import pytest
from rich.cells import cell_len

from tests.cli.support import KEY
from tests.cli.terminal import RICH, Terminal, terminal
from tests.support.processes.services import Process, free_port

pytestmark = pytest.mark.processes

BOOT_LIMIT_S = 60.0
# A machine boots in two seconds: long enough to leave it alone meanwhile.
SPEED = "10"
# The tests come in any order, and some leave rentals behind that the estimate is made from.
READY = re.compile(r"ready in about \d+ (s|min) \((a first guess|\d+ earlier rentals)\)")
WISH = ("--gpu", "4090", "--template", "101")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One for the whole file: its start costs more than all the rest."""
    directory, port = tmp_path_factory.mktemp("server"), free_port()
    with asyncio.Runner() as runner:
        process = runner.run(started(directory, port))
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            runner.run(process.end())


async def started(directory: Path, port: int) -> Process:
    settings = {
        "GPUHERD_DATA_DIR": str(directory / "data"),
        "GPUHERD_PORT": str(port),
        "GPUHERD_ADMIN_KEY": KEY,
        "GPUHERD_FAST_POLL_INTERVAL": "0.2",
        "GPUHERD_WATCH_BUDGET": "0",
        "NOVITA_RATE_LIMIT": "0",
    }
    words = ["serve", "--simulator", "--simulator-speed", SPEED]
    process = Process(words, settings, directory / "server.log")
    await process.start()
    async with asyncio.timeout(BOOT_LIMIT_S), aiohttp.ClientSession() as session:
        while True:
            assert process.exit_code is None, process.log.read_text()[-2000:]
            try:
                if (await session.get(f"http://127.0.0.1:{port}/readyz")).status == 200:
                    return process
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


def seen(url: str, *argv: str, columns: int = 80, code: int = 0) -> Terminal:
    """Run a command that asks nothing, and return what it showed."""
    with terminal(url, *argv, columns=columns) as screen:
        assert screen.end() == code, screen.text
    return screen


def assert_fits(screen: Terminal, columns: int) -> None:
    rest = RICH.sub("", screen.raw).replace("\r\n", "\n").replace("\r", "")
    assert all(char == "\n" or char.isprintable() for char in rest), repr(rest)
    assert all(cell_len(line) <= columns for line in screen.lines), screen.lines


def words_of(lines: Sequence[str]) -> str:
    return " ".join(" ".join(lines).split())


def test_the_plan_is_shown_and_what_is_wanted_is_rented(server: str) -> None:
    with terminal(server, "up", *WISH, "--name", "wanted") as screen:
        screen.until("Rent it? [y/N]")
        best, *rest = screen.text.splitlines()
        screen.type("y\r")
        assert screen.end() == 0
    assert "RTX 4090 24GB · " in best and "/h spot" in best
    (at,) = [at for at, line in enumerate(rest) if READY.fullmatch(line)]
    assert words_of(rest[:at]).startswith("runs docker.io/pytorch/pytorch:")
    assert rest[at + 1].startswith("if that is gone: ")
    shown = words_of(screen.display)
    for stage in ("accepted", "renting", "starting", "running", "ready"):
        assert f"✓ {stage}" in shown
    assert "ssh " in shown
    # Rented is what the plan promised.
    region = best.split(" · ")[1]
    assert region in words_of(seen(server, "ls", "--name", "wanted").display)


@pytest.mark.parametrize(("answer", "code"), [("n\r", 1), ("\x03", 130)])
def test_without_a_yes_nothing_is_rented(server: str, answer: str, code: int) -> None:
    with terminal(server, "up", *WISH, "--name", "unwanted") as screen:
        screen.until("Rent it? [y/N]")
        screen.answer(answer)
        assert screen.end() == code
    assert "nothing was rented" in screen.text
    assert "Traceback" not in screen.text
    assert "no instance is like that" in seen(server, "ls", "--name", "unwanted").text


def test_what_cannot_be_had_is_refused_without_a_question(server: str) -> None:
    screen = seen(server, "up", *WISH, "--max-price", "0.01", code=6)
    assert "[y/N]" not in screen.text
    assert "above the limit of 0.01" in words_of(screen.display)
    screen = seen(server, "plan", *WISH, "--max-price", "0.01", code=6)
    assert "NOT TRIED" in screen.text and "(NO_OPTIMAL_PRODUCT_ANY_REGION)" in words_of(screen.display)


def test_whoever_would_wait_for_an_offer_is_asked_that(server: str) -> None:
    with terminal(server, "up", *WISH, "--max-price", "0.01", "--wait-for-capacity", "600") as screen:
        screen.until("Order it, and wait for an offer? [y/N]")
        assert "it would wait up to 600 s for an offer that fits" in screen.text
        screen.type("n\r")
        assert screen.end() == 1


def test_ctrl_c_detaches_and_the_work_goes_on(server: str) -> None:
    with terminal(server, "up", "--yes", *WISH, "--name", "left-alone") as screen:
        screen.until("inst_")
        screen.type("\x03")
        assert screen.end() == 130
    assert "follow it with: gpuherd wait left-alone" in words_of(screen.display)
    assert "✓ ready" in words_of(seen(server, "wait", "left-alone").display)
    told = words_of(seen(server, "why", "left-alone").display)
    assert "Accepted: 1 × 4090, spot" in told
    assert "It can be used" in told
    assert "phases creating" in told


def test_the_plan_ranks_what_would_be_tried_and_tells_why_the_rest_is_not(server: str) -> None:
    screen = seen(server, "plan", *WISH, "--region", "CN-HK-01", "--region", "AS-SGP-02")
    head, first, second, *rest = screen.display
    assert head.split()[:4] == ["#", "GPU", "REGION", "PRICE"]
    assert (first.split()[0], second.split()[0]) == ("1", "2")
    assert "CN-HK-01" in first and "AS-SGP-02" in second and re.search(r" ~\d+ (s|min) ", first)
    assert "is not among the regions asked for" in words_of(rest)
    assert READY.search(words_of(rest))


def test_on_a_narrow_terminal_no_line_is_too_long(server: str) -> None:
    columns = 40
    with terminal(server, "up", *WISH, "--name", "narrow", columns=columns) as screen:
        screen.until("Rent it? [y/N]")
        screen.type("y\r")
        assert screen.end() == 0
    assert_fits(screen, columns)
    for command in (("plan", *WISH), ("ls",), ("why", "narrow"), ("wait", "narrow")):
        assert_fits(seen(server, *command, columns=columns), columns)


def test_what_has_no_end_says_what_a_day_costs_and_how_to_set_one(server: str) -> None:
    told = words_of(seen(server, "up", "--yes", *WISH, "--name", "endless").display)
    assert re.search(r"No lease is set\. This instance costs \$\d+\.\d\d per day until you stop it\.", told)
    assert "set one with: gpuherd lease endless +8h" in told
    assert "costs" in words_of(seen(server, "lease", "endless", "+8h").display)
    listed = seen(server, "ls", columns=140).display
    assert "ENDS" in listed[0]
    assert re.search(r"in [78] h", next(line for line in listed if "endless" in line))
    ended = words_of(seen(server, "up", "--yes", *WISH, "--name", "ended", "--lease", "8h").display)
    assert "it has no end" not in ended


def test_an_idle_one_can_be_kept(server: str) -> None:
    told = words_of(seen(server, "up", "--yes", *WISH, "--name", "lazy", "--idle", "30m").display)
    assert "it has no end" not in told
    assert "stop after 30 min of idleness" in words_of(seen(server, "show", "lazy").display)
    seen(server, "keep", "lazy")


def test_a_name_that_no_path_can_carry_is_refused(server: str) -> None:
    screen = seen(server, "up", "--yes", *WISH, "--name", "team/train", code=2)
    assert "name:" in words_of(screen.display)
    assert "no instance is like that" in seen(server, "ls", "--name", "team/train").text
