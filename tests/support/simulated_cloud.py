"""The real adapter of Novita on a simulated world in this process: no socket, and the clock of the world."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from random import Random
from typing import Any

from gpuherd.adapters.novita.novita_billing import NovitaBilling, NovitaMetrics, NovitaVolumes
from gpuherd.adapters.novita.novita_call import (
    API_ROOT,
    HOST_ROOT,
    NoReply,
    NotSent,
    NovitaReply,
    read_reply,
)
from gpuherd.adapters.novita.novita_cloud import NovitaCloud
from gpuherd.adapters.novita.novita_images import NovitaImages, NovitaPrewarms
from gpuherd.adapters.novita.novita_transport import NovitaTransport
from gpuherd.adapters.novita.redaction import NO_SECRETS, CallSecrets
from gpuherd.domain.secret import Secret
from gpuherd.resilience.circuit_breaker import CircuitBreaker
from gpuherd.resilience.rate_limiter import RateLimiter
from gpuherd.resilience.retry import parse_retry_after
from gpuherd.simulator.faults import FaultKind
from gpuherd.simulator.simulated_request import ConnectionCut
from gpuherd.simulator.simulator_app import Exchange, exchange
from gpuherd.simulator.wire_reply import WireReply
from gpuherd.simulator.world import World

API_KEY = Secret("sk_simulated")


class WorldExchange:
    """One call to a simulated world, as `adapters/novita/exchange` makes it to a host.

    With `latency_s` each call takes that long, half before and half after its effect, so that a caller
    cancelled in between has lost the reply. The world carries out a call that the caller has given up.
    """

    def __init__(self, world: World, *, latency_s: float = 0.0, call: Exchange | None = None) -> None:
        self._world, self._clock, self._latency_s = world, world.clock, latency_s
        self._call = call or exchange(world)
        self._learnt: tuple[Secret, ...] = ()
        self._given_up: set[asyncio.Task[WireReply]] = set()

    @property
    def account_secrets(self) -> CallSecrets:
        return CallSecrets((API_KEY, *self._learnt))

    def learn_credentials(self, credentials: tuple[Secret, ...]) -> None:
        self._learnt = credentials

    async def close(self) -> None:
        pass

    async def get(
        self, path: str, params: Mapping[str, str], timeout_s: float, *, fresh: bool
    ) -> NovitaReply:
        return await self._send("GET", path, params, timeout_s)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        timeout_s: float,
        send_by_s: float = math.inf,
        secrets: CallSecrets = NO_SECRETS,
    ) -> NovitaReply:
        if self._clock.boottime() > send_by_s:
            raise NotSent("gpuherd was held up before the call")
        return await self._send("POST", path, json.dumps(body).encode(), timeout_s, secrets)

    async def _send(
        self,
        method: str,
        path: str,
        content: Mapping[str, Any] | bytes,
        timeout_s: float,
        secrets: CallSecrets = NO_SECRETS,
    ) -> NovitaReply:
        path = path if path.startswith(HOST_ROOT) else API_ROOT + path
        if self._latency_s:
            await self._clock.sleep(self._latency_s / 2)
        call = self._call(method, path, f"Bearer {API_KEY.reveal()}", content)
        may_hang = any(armed.fault.kind is FaultKind.HANG for armed in self._world.faults.armed)
        try:
            reply = await (self._within(timeout_s, asyncio.ensure_future(call)) if may_hang else call)
        except ConnectionCut:
            raise NoReply("the connection broke") from None
        if reply.breaks_off:
            raise NoReply("the reply broke off")
        if self._latency_s:
            await self._clock.sleep(self._latency_s / 2)
        retry_after_s = parse_retry_after(reply.headers.get("Retry-After"), self._clock.now())
        involved = self.account_secrets.plus(secrets)
        return read_reply(reply.status, reply.body, retry_after_s, involved, reply.headers)

    async def _within(self, timeout_s: float, call: asyncio.Task[WireReply]) -> WireReply:
        self._given_up.add(call)
        call.add_done_callback(self._forget)
        timer = asyncio.ensure_future(self._clock.sleep(timeout_s))
        try:
            await asyncio.wait({call, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if not call.done():
            raise NoReply("it took too long", timed_out=True)
        return call.result()

    def _forget(self, call: asyncio.Task[WireReply]) -> None:
        self._given_up.discard(call)
        if not call.cancelled():
            # Retrieved, so that asyncio does not report an exception that nothing awaited.
            call.exception()


def simulated_transport(
    world: World, *, timeout_s: float = 30.0, latency_s: float = 0.0, call: Exchange | None = None
) -> NovitaTransport:
    """Return a transport without a limit, whose breaker stays closed: both have tests of their own."""
    return NovitaTransport(
        WorldExchange(world, latency_s=latency_s, call=call),
        clock=world.clock,
        rng=Random(1),
        limiter=RateLimiter(world.clock, per_minute=0),
        breaker=CircuitBreaker(world.clock, threshold=10**6),
        request_timeout_s=timeout_s,
    )


class SimulatedCloud(NovitaCloud):
    """`NovitaCloud` on a world."""

    def __init__(
        self,
        world: World,
        *,
        timeout_s: float = 30.0,
        latency_s: float = 0.0,
        call: Exchange | None = None,
    ) -> None:
        transport = simulated_transport(world, timeout_s=timeout_s, latency_s=latency_s, call=call)
        super().__init__(transport, clock=world.clock)
        self.world = world


class SimulatedAccount:
    """What the account has besides machines: bill, balance, volumes, credentials, prewarms."""

    def __init__(self, world: World, call: Exchange | None = None) -> None:
        transport = simulated_transport(world, call=call)
        billing, volumes = NovitaBilling(transport), NovitaVolumes(transport)
        images, prewarms = NovitaImages(transport), NovitaPrewarms(transport)
        self.charges, self.available_usd = billing.charges, billing.available_usd
        self.list_volumes = billing.list_volumes
        self.create_volume, self.delete_volume = volumes.create_volume, volumes.delete_volume
        self.list_credentials = images.list_credentials
        self.list_prewarms, self.prewarm_quota = prewarms.list_prewarms, prewarms.prewarm_quota
        self.create_prewarm, self.delete_prewarm = prewarms.create_prewarm, prewarms.delete_prewarm


class SimulatedMetrics(NovitaMetrics):
    """`NovitaMetrics` on a world."""

    def __init__(self, world: World) -> None:
        super().__init__(simulated_transport(world))
