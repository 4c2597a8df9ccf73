"""Single calls to Novita, each sent once and well apart: a service on the same key is not disturbed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuherd.adapters.novita.novita_call import NoReply, NotSent, NovitaExchange, NovitaReply
from gpuherd.ops.doctor.results import CannotLook
from gpuherd.ports.clock_port import Clock

TIMEOUT_S = 20.0
# Of the calls that the service may make; what it needs itself is far less than its limit.
SHARE = 0.25
SPACING_MIN_S = 0.1
RETRY_AFTER_MAX_S = 30.0


@dataclass(frozen=True)
class Throttled:
    """A 429 that was met; the doctor provokes none."""

    retry_after_s: float | None


@dataclass
class NovitaCalls:
    """Asks, waits between questions, and notes what the answers say of limits."""

    exchange: NovitaExchange
    clock: Clock
    spacing_s: float
    limit_headers: dict[str, str] = field(default_factory=dict)
    throttled: list[Throttled] = field(default_factory=list)
    made: int = 0
    _next_s: float = float("-inf")

    async def get(self, path: str, **params: str) -> NovitaReply:
        """Read; once more where nothing came, or an error of a server: one bad moment is no finding."""
        why = ""
        for may_repeat in (True, False):
            await self._turn()
            try:
                reply = await self.exchange.get(path, params, TIMEOUT_S, fresh=True)
            except (NotSent, NoReply) as failed:
                why = str(failed)
                continue
            if reply.status < 500 or not may_repeat:
                return await self._noted(reply)
        raise CannotLook(f"Novita gave no answer to {path}: {why}")

    async def post(self, path: str, body: Mapping[str, Any]) -> NovitaReply:
        await self._turn()
        try:
            reply = await self.exchange.post(path, body, TIMEOUT_S)
        except (NotSent, NoReply) as failed:
            raise CannotLook(f"Novita gave no answer to {path}: {failed}") from None
        return await self._noted(reply)

    async def _turn(self) -> None:
        await self.clock.sleep(max(0.0, self._next_s - self.clock.monotonic()))
        self._next_s = self.clock.monotonic() + self.spacing_s
        self.made += 1

    async def _noted(self, reply: NovitaReply) -> NovitaReply:
        self.limit_headers.update(reply.limit_headers)
        if reply.status == 429:
            self.throttled.append(Throttled(reply.retry_after_s))
            wait_s = RETRY_AFTER_MAX_S if reply.retry_after_s is None else reply.retry_after_s
            self._next_s = self.clock.monotonic() + min(wait_s, RETRY_AFTER_MAX_S)
        return reply


def spacing_s(calls_per_minute: int) -> float:
    """Return the time between two calls that leaves the service its share of the limit."""
    return max(SPACING_MIN_S, 60 / (calls_per_minute * SHARE)) if calls_per_minute else SPACING_MIN_S
