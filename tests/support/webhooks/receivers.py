"""Receivers of webhooks that do as a test says, and a pool of workers that sends to them side by side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from gpuherd.domain.secret import Secret
from gpuherd.ports.webhook_port import DeliveryResult
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd

OK = DeliveryResult(True, 200, "ok", "the receiver answered 200", None, 0.0)
DOWN = DeliveryResult(False, None, "refused", "the host refused the connection", None, 0.0)
BROKEN = DeliveryResult(False, 500, "http_5xx", "the receiver answered 500", None, 0.0)
GONE = DeliveryResult(False, 410, "gone", "the receiver answered 410", None, 0.0)
MOVED = DeliveryResult(False, 302, "redirect", "the receiver answered 302", None, 0.0)
MISSING = DeliveryResult(False, 404, "http_4xx", "the receiver answered 404", None, 0.0)


@dataclass(frozen=True)
class DeliveryAttempt:
    """One try, as the receivers saw it."""

    at: datetime
    url: str
    event_id: str
    body: bytes
    secrets: tuple[Secret, ...] | None
    accepted: bool

    @property
    def event(self) -> dict[str, Any]:
        whole: dict[str, Any] = json.loads(self.body)
        return whole

    @property
    def sequence(self) -> int:
        return int(self.event["data"]["sequence"])


@dataclass
class Hooks:
    """Every receiver in the world: `answer` decides by URL and body, `takes_s` how long that lasts."""

    clock: FakeClock
    answer: Callable[[str, bytes], DeliveryResult] = lambda _url, _body: OK
    takes_s: Callable[[str], float] = lambda _: 0.0
    visits: list[DeliveryAttempt] = field(default_factory=list)
    inside: dict[str, int] = field(default_factory=dict)
    most_inside: dict[str, int] = field(default_factory=dict)

    async def send(
        self, url: str, event_id: str, body: bytes, now: datetime, secrets: Sequence[Secret] | None = None
    ) -> DeliveryResult:
        host = urlsplit(url).netloc
        self.inside[host] = self.inside.get(host, 0) + 1
        self.most_inside[host] = max(self.most_inside.get(host, 0), self.inside[host])
        started = self.clock.monotonic()
        try:
            if (seconds := self.takes_s(url)) > 0:
                await self.clock.sleep(seconds)
        finally:
            self.inside[host] -= 1
        result = self.answer(url, body)
        keys = None if secrets is None else tuple(secrets)
        self.visits.append(DeliveryAttempt(self.clock.now(), url, event_id, body, keys, result.accepted))
        return DeliveryResult(
            result.accepted,
            result.status,
            result.category,
            result.detail,
            result.retry_after_s,
            self.clock.monotonic() - started,
        )

    @property
    def arrived(self) -> list[DeliveryAttempt]:
        return [it for it in self.visits if it.accepted]

    def at(self, url: str) -> list[DeliveryAttempt]:
        return [it for it in self.visits if it.url == url]


async def send_side_by_side(herd: Herd, span: timedelta, slots: int = 16, step_s: float = 0.01) -> int:
    """Do the webhook jobs that fall due while `span` passes, at most `slots` at a time, like the engine.

    Return how many times a job was run.
    """
    end, runs = herd.clock.now() + span, 0
    under_way: set[asyncio.Task[None]] = set()
    while herd.clock.now() < end:
        under_way = {task for task in under_way if not task.done()}
        while len(under_way) < slots and (it := herd.queue.pick("send_webhook")):
            under_way.add(asyncio.create_task(herd.run_queued(it)))
            runs += 1
        await herd.clock.sleep(step_s)
    await asyncio.gather(*under_way)
    return runs
