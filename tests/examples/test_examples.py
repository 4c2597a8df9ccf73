"""The examples do what they say: each one is run as a user would run it, against a real server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import os
import re
import shutil
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.support.processes.services import KEY, Novita, Server
from tests.support.webhooks.mail_server import MailServer

pytestmark = pytest.mark.processes

EXAMPLES = Path(__file__).parents[2] / "examples"
SECRET = "whsec_Y2FuYXJ5LXdlYmhvb2stc2VjcmV0LTAxMjM0NTY3"
SENDER = "gpuherd@example.com"
LIMIT_S = 90.0
BODY = b'{"type":"instance.ready","data":{"name":"forged","status":"running","sequence":4}}'

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

REGISTRY_CANARY = "canary-of-a-registry"
RENTERS = [
    pytest.param((sys.executable, "python/rent_and_wait.py", "--name", "job"), id="python"),
    pytest.param(("bash", "curl/rent.sh", "job"), id="curl", marks=needs_curl),
    pytest.param(("node", "javascript/rent.mjs", "job"), id="javascript", marks=needs_node),
]
RENT_IMAGE = pytest.param(
    (sys.executable, "python/rent_image.py", "--port", "8000/http", "--env", "PATH"), id="python"
)
SPENDING = pytest.param((sys.executable, "python/spending.py", "--label", "team"), id="python")
LOGS = pytest.param((sys.executable, "python/logs.py", "job"), id="python")
VOLUMES = pytest.param((sys.executable, "python/volumes.py", "data", "US-CA-06", "100"), id="python")
PREWARM = pytest.param(
    (sys.executable, "python/prewarm.py", "ghcr.io/team/trainer:1", "US-CA-06"), id="python"
)
BUDGETS = pytest.param((sys.executable, "python/budgets.py", "team=nlp"), id="python")
NOTIFY = pytest.param((sys.executable, "python/notify.py", "slack"), id="python")
RECEIVERS = [
    pytest.param((sys.executable, "python/webhook_receiver.py", "--port", "0"), id="python"),
    pytest.param(("node", "javascript/verify_webhook.mjs", "0"), id="javascript", marks=needs_node),
]


@pytest.fixture
async def mail_server() -> AsyncIterator[MailServer]:
    async with MailServer() as it:
        yield it


@pytest.fixture
async def server(tmp_path: Path, mail_server: MailServer) -> AsyncIterator[Server]:
    novita = Novita(tmp_path)
    await novita.process.start()
    try:
        async with asyncio.timeout(LIMIT_S):
            while "simulated Novita" not in novita.process.log.read_text():
                await asyncio.sleep(0.05)
        mail = {"GPUHERD_SMTP_URL": f"smtp+plain://127.0.0.1:{mail_server.port}", "GPUHERD_SMTP_FROM": SENDER}
        it = Server(tmp_path, novita, WEBHOOK_SECRET=SECRET, **mail)
        await it.process.start()
        try:
            await it.ready()
            yield it
        finally:
            if it.process.exit_code is None:
                await it.process.end()
    finally:
        await novita.process.end()


class Example:
    """One example at work, and every line that it has printed."""

    def __init__(self, process: asyncio.subprocess.Process):
        self._process = process
        self.lines: list[str] = []

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    async def until(self, words: str) -> str:
        """Return the next line that holds `words`."""
        while True:
            line = await self._line()
            assert line is not None, f"{words!r} never came:\n{self.said}"
            if words in line:
                return line

    async def end(self) -> int:
        while await self._line() is not None:
            pass
        return await self._process.wait()

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def _line(self) -> str | None:
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode()
        if not line:
            return None
        self.lines.append(line.rstrip("\n"))
        return self.lines[-1]


class Channel:
    """Stands for a channel in Slack."""

    def __init__(self) -> None:
        self.messages: list[dict[str, str]] = []
        self.status = 200
        self._more = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/services/T/B/x"

    async def __aenter__(self) -> None:
        app = web.Application()
        app.router.add_post("/services/T/B/x", self._post)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def hears(self, words: str) -> None:
        while not any(words in it["text"] for it in self.messages):
            self._more.clear()
            await self._more.wait()

    async def _post(self, request: web.Request) -> web.Response:
        if self.status == 200:
            self.messages.append(await request.json())
            self._more.set()
        return web.Response(status=self.status, text="ok")


@contextlib.asynccontextmanager
async def example(words: tuple[str, ...], url: str = "", key: str = KEY) -> AsyncIterator[Example]:
    """Run an example: the program, the file below `examples/`, its arguments."""
    program, file, *arguments = words
    env = {"PATH": os.environ["PATH"], "GPUHERD_URL": url, "GPUHERD_API_KEY": key, "WEBHOOK_SECRET": SECRET}
    env["REGISTRY_PASSWORD"] = REGISTRY_CANARY
    process = await asyncio.create_subprocess_exec(
        *(program, str(EXAMPLES / file), *arguments),
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    it = Example(process)
    try:
        async with asyncio.timeout(LIMIT_S):
            yield it
    finally:
        await it.kill()


@pytest.mark.parametrize("words", RENTERS)
async def test_it_rents_waits_shows_the_way_in_and_stops(words: tuple[str, ...], server: Server) -> None:
    async with example(words, server.url) as it:
        assert await it.end() == 0, it.said
    assert re.search(r"^ready: RTX 4090 24GB in \S+ for \$0\.\d+/h$", it.said, re.MULTILINE), it.said
    assert re.search(r"^  ssh: .*ssh ", it.said, re.MULTILINE), it.said
    _, listed = await server.call("GET", "/api/instances")
    (instance,) = listed["instances"]
    assert f"accepted as {instance['id']}" in it.said
    assert (instance["name"], instance["status"], instance["goal"]) == ("job", "exited", "stopped")


@pytest.mark.parametrize("words", RENTERS)
async def test_a_refusal_is_shown_and_fails_it(words: tuple[str, ...], server: Server) -> None:
    async with example(words, server.url, key="not-a-key-of-this-server") as it:
        assert await it.end() != 0
    assert "UNAUTHORIZED" in it.said
    assert "Traceback" not in it.said


@pytest.mark.parametrize("words", [RENT_IMAGE])
async def test_it_rents_an_image_and_gives_it_back(words: tuple[str, ...], server: Server) -> None:
    async with example(words, server.url) as it:
        assert await it.end() == 0, it.said
    assert re.search(
        r"^would run docker\.io/pytorch/\S+: sleep infinity for \$0\.\d+/h$", it.said, re.MULTILINE
    )
    assert re.search(r"^runs: docker\.io/pytorch/\S+: sleep infinity$", it.said, re.MULTILINE), it.said
    assert re.search(r"^  port 8000: http", it.said, re.MULTILINE), it.said
    assert "variables: PATH=***" in it.said
    _, listed = await server.call("GET", "/api/instances")
    (instance,) = listed["instances"]
    assert instance["goal"] == "deleted"
    assert os.environ["PATH"] not in str(instance)


@pytest.mark.parametrize("words", [SPENDING])
async def test_it_says_what_was_spent_and_what_still_costs(words: tuple[str, ...], server: Server) -> None:
    wish = {"name": "job", "productName": "RTX 4090 24GB", "templateId": "101", "labels": {"team": "nlp"}}
    _, made = await server.call("POST", "/api/instances", wish)
    await server.until_settled(made["id"])
    async with example(words, server.url) as it:
        assert await it.end() == 0, it.said
    assert re.search(r"^since 20\d\d-\d\d-01: \$0\.\d{4}, give or take \$0\.\d{4}$", it.said, re.MULTILINE), (
        it.said
    )
    assert re.search(r"^goes on: \$0\.\d{4}/h$", it.said, re.MULTILINE), it.said
    assert re.search(r"^balance: \$\d+\.\d\d, which lasts ", it.said, re.MULTILINE), it.said


@pytest.mark.parametrize("words", [LOGS])
async def test_it_follows_a_log_until_it_says_the_word(words: tuple[str, ...], server: Server) -> None:
    wish = {"name": "job", "productName": "RTX 4090 24GB", "templateId": "101"}
    _, made = await server.call("POST", "/api/instances", wish)
    await server.until_settled(made["id"])
    async with example(words, server.url) as it:
        assert await it.end() == 0, it.said
    assert re.search(r"pulled layer 8 of 8", it.said), it.said
    assert re.search(r"the program is up\n.* step 1$", it.said.rstrip()), it.said


@pytest.mark.parametrize("words", [VOLUMES])
async def test_it_makes_a_volume_once_and_mounts_it(words: tuple[str, ...], server: Server) -> None:
    shown, mounted = (
        "  data: 100 GB in US-CA-06, $0.008333/h",
        "    at /data of a machine in US-CA-06",
    )
    async with example(words, server.url) as it:
        assert await it.end() == 0, it.said
    assert it.said.splitlines() == ["made data in US-CA-06", shown]
    async with example((*words, "/data"), server.url) as it:
        assert await it.end() == 0, it.said
    assert it.said.splitlines() == ["data is there already", shown, mounted]


@pytest.mark.parametrize("words", [PREWARM])
async def test_it_has_an_image_pulled_once_and_rents_there(words: tuple[str, ...], server: Server) -> None:
    async with example((*words, "--rent"), server.url) as it:
        assert await it.end() == 0, it.said
    pulled, quota = r"pulled: ghcr.io/team/trainer:1 is in US-CA-06 \(\d+\.\d GB\)", "quota: 1 of 5 tasks"
    *states, told, used, runs = it.lines
    assert states[-1] == "  succeeded", it.said
    assert re.fullmatch(pulled, told), it.said
    assert (used, runs) == (quota, "runs: ghcr.io/team/trainer:1 in US-CA-06")
    async with example((*words, "--remove"), server.url) as it:
        assert await it.end() == 0, it.said
    assert it.lines[:2] == ["there is a task for it already", "  succeeded"]
    assert it.lines[-1] == "removed"


@pytest.mark.parametrize("words", [BUDGETS])
async def test_it_sets_a_budget_that_holds_and_shows_how_far_it_is_used_up(
    words: tuple[str, ...], server: Server
) -> None:
    wish = {"name": "job", "productName": "RTX 4090 24GB", "templateId": "101", "labels": {"team": "nlp"}}
    _, made = await server.call("POST", "/api/instances", wish)
    await server.until_settled(made["id"])
    async with example((*words, "200", "--at-limit", "stop"), server.url) as it:
        assert await it.end() == 0, it.said
    assert it.lines[0] == "made team=nlp"
    shown = r"\[\.{20}\] team=nlp: \$0\.\d{4} of \$200 \(month\), ok; lasts \d+ h at \$0\.\d{4}/h"
    assert re.fullmatch(shown, it.lines[1]), it.said
    async with example((*words, "0.01", "--period", "total"), server.url) as it:
        assert await it.end() == 0, it.said
    assert it.lines[0] == "changed team=nlp"
    status, refused = await server.call("POST", "/api/instances", {**wish, "name": "another"})
    assert (status, refused["code"]) == (429, "BUDGET_EXHAUSTED")


@pytest.mark.parametrize("words", [NOTIFY])
async def test_it_adds_a_channel_that_hears_of_a_rental(words: tuple[str, ...], server: Server) -> None:
    channel = Channel()
    async with channel:
        async with example((*words, channel.url, "--label", "#gpus"), server.url) as it:
            assert await it.end() == 0, it.said
        assert re.search(r"^added ep_\w+: slack at http://127\.0\.0\.1:\d+/\*\*\*, \d+ kinds", it.said), (
            it.said
        )
        assert "the test arrived (200)" in it.said
        wish = {"name": "job <!channel>", "productName": "RTX 4090 24GB", "templateId": "101"}
        await server.call("POST", "/api/instances", wish)
        async with asyncio.timeout(LIMIT_S):
            await channel.hears("is ready")
        assert [it["text"].partition("\n")[0] for it in channel.messages] == [
            "gpuherd can reach you",
            "job &lt;!channel&gt; is ready",
        ]
        channel.status = 404
        async with example((*words, channel.url), server.url) as it:
            assert await it.end() == 1
        assert "it did not arrive, so it is removed again: the receiver answered 404" in it.said
    _, listed = await server.call("GET", "/api/webhooks/endpoints")
    assert listed["total"] == 1


@pytest.mark.parametrize("words", [NOTIFY])
async def test_it_adds_a_mailbox_that_hears_of_a_rental(
    words: tuple[str, ...], server: Server, mail_server: MailServer
) -> None:
    async with example((*words[:2], "email", "mailto:ops@example.org"), server.url) as it:
        assert await it.end() == 0, it.said
    assert "email at mailto:ops@example.org" in it.said and "the test arrived (250)" in it.said
    wish = {"name": "jöb", "productName": "RTX 4090 24GB", "templateId": "101"}
    await server.call("POST", "/api/instances", wish)
    async with asyncio.timeout(LIMIT_S):
        while len(mail_server.mails) < 2:
            await asyncio.sleep(0.05)
    test, ready = mail_server.mails
    assert (ready.sender, ready.recipient) == (SENDER, "ops@example.org")
    assert str(test.message["Subject"]) == "[gpuherd] gpuherd can reach you"
    assert str(ready.message["Subject"]) == "[gpuherd] jöb is ready"
    _, listed = await server.call("GET", "/api/webhooks/deliveries")
    assert str(ready.message["Message-ID"]) == f"<{listed['deliveries'][0]['id']}@example.com>"


@pytest.mark.parametrize("words", RECEIVERS)
async def test_webhooks_of_a_rental_are_verified(words: tuple[str, ...], server: Server) -> None:
    async with example(words) as it:
        wish = {
            "name": "job",
            "productName": "RTX 4090 24GB",
            "templateId": "101",
            "webhookUrl": await hook(it),
        }
        status, made = await server.call("POST", "/api/instances", wish)
        assert status == 201, made
        await it.until("instance.ready")
        await server.call("POST", f"/api/instances/{made['id']}/stop")
        await it.until("instance.exited")
    assert "refused" not in it.said


@pytest.mark.parametrize("words", RECEIVERS)
async def test_what_is_not_genuine_is_refused(words: tuple[str, ...]) -> None:
    async with example(words) as it, aiohttp.ClientSession() as session:
        url = await hook(it)

        async def deliver(body: bytes, headers: dict[str, str]) -> int:
            async with session.post(url, data=body, headers=headers) as reply:
                return reply.status

        now = int(time.time())
        genuine = signed(BODY, now)
        wrong_secret = signed(BODY, now, key=b"somebody else's secret")
        rotated = wrong_secret["webhook-signature"] + " " + genuine["webhook-signature"]
        assert await deliver(BODY, genuine) == 204
        assert await deliver(BODY, {**genuine, "webhook-signature": rotated}) == 204
        assert await deliver(BODY, signed(BODY, now - 240)) == 204
        assert await deliver(BODY.replace(b"ready", b"faked"), genuine) == 401
        assert await deliver(BODY, {**genuine, "webhook-id": "msg_2"}) == 401
        assert await deliver(BODY, wrong_secret) == 401
        assert await deliver(BODY, {**genuine, "webhook-signature": "v1,"}) == 401
        assert await deliver(BODY, {}) == 401
        assert await deliver(BODY, signed(BODY, now - 360)) == 401
        assert await deliver(BODY, signed(BODY, now + 360)) == 401
        await it.until("refused: no signature fits")
    assert "faked" not in it.said


def test_every_example_is_run_and_explained() -> None:
    files = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.glob("*/*") if path.is_file()}
    run = (*RENTERS, RENT_IMAGE, SPENDING, LOGS, VOLUMES, PREWARM, BUDGETS, NOTIFY, *RECEIVERS)
    assert files == {param.values[0][1] for param in run}  # type: ignore[index]
    explained = (EXAMPLES / "README.md").read_text()
    assert all(f"]({name})" in explained for name in files)


async def hook(it: Example) -> str:
    """Return where a receiver listens."""
    return (await it.until("listening on ")).removeprefix("listening on ")


def signed(
    body: bytes, at: int, key: bytes = base64.b64decode(SECRET.removeprefix("whsec_"))
) -> dict[str, str]:
    """Sign as the standard says, in words of our own: neither the server's code nor the example's."""
    mac = hmac.digest(key, b"msg_1.%d.%s" % (at, body), hashlib.sha256)
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(at),
        "webhook-signature": "v1," + base64.b64encode(mac).decode(),
    }
