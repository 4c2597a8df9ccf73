"""Builders for the tests of the Novita adapter: a transport and a cloud on a clock that costs no time."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

from gpuherd.adapters.novita.novita_call import Exchange
from gpuherd.adapters.novita.novita_cloud import NovitaCloud
from gpuherd.adapters.novita.novita_transport import NovitaTransport
from gpuherd.domain.cloud.offer import BillingMode, Offer
from gpuherd.domain.cloud.template import CreateCall, Template
from gpuherd.domain.secret import Secret
from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.circuit_breaker import CircuitBreaker
from gpuherd.resilience.rate_limiter import RateLimiter
from tests.support.fake_clock import FakeClock

KEY = "sk_this-is-the-key-that-nobody-may-see"


def build_transport(base_url: str, *, clock: Clock | None = None, **settings: Any) -> NovitaTransport:
    clock = clock or FakeClock(auto=True)
    settings = {
        "rng": random.Random(1),
        "limiter": RateLimiter(clock, per_minute=0),
        "breaker": CircuitBreaker(clock),
        "request_timeout_s": 5.0,
        **settings,
    }
    limits = {"max_bytes": settings.pop("max_bytes")} if "max_bytes" in settings else {}
    return NovitaTransport(Exchange(base_url, Secret(KEY), clock=clock, **limits), clock=clock, **settings)


@contextlib.asynccontextmanager
async def open_transport(base_url: str, **settings: Any) -> AsyncIterator[NovitaTransport]:
    transport = build_transport(base_url, **settings)
    try:
        yield transport
    finally:
        await transport.close()


@contextlib.asynccontextmanager
async def open_cloud(base_url: str, *, trust_429: bool = True, **settings: Any) -> AsyncIterator[NovitaCloud]:
    clock = settings.pop("clock", None) or FakeClock(auto=True)
    cloud = NovitaCloud(build_transport(base_url, clock=clock, **settings), clock=clock, trust_429=trust_429)
    try:
        yield cloud
    finally:
        await cloud.close()


OFFER = Offer(
    product_id="4090.16c62g",
    product_name="RTX 4090 24GB",
    region="US-CA-06",
    cluster_id="us-ca-6",
    available=True,
    stock="normal",
    spot_usd=Decimal("0.175"),
    on_demand_usd=Decimal("0.35"),
)
TAG = "gh1-abcd1234-01jcqz0000000000000000test-1"
ORDER = CreateCall(
    name=f"train--{TAG}",
    tag=TAG,
    offer=OFFER,
    template=Template(
        template_id="101",
        name="Ubuntu",
        image="docker.io/library/ubuntu:22.04",
        ports=((80, "http"), (22, "tcp")),
        envs=(("A", "1"),),
    ),
    gpu_num=1,
    disk_gb=60,
    billing_mode=BillingMode.SPOT,
)
