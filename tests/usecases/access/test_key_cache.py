"""The registry: one hash and two comparisons for whatever key, known or not, and no look into the store."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from gpuherd.domain.access.api_key import ApiKey, Limits, Scope, digest_of, new_key
from gpuherd.domain.access.caller import ADMIN, Caller
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.usecases.access import key_cache
from gpuherd.usecases.access.key_cache import BATCHES_PER_MINUTE, DUMMY_DIGEST, ApiKeyCache
from tests.support.fake_clock import START, FakeClock
from tests.support.memory.shared_limits import MemorySharedLimits

SECRET = new_key("adaadaad", 7).reveal()
ADA = ApiKey("adaadaad", digest_of(SECRET.encode()).hex(), "", (Scope.WRITE,), START)
ADMIN_KEY = "ghk_the_admin_key_of_this_test"


class Shelf:
    """Keys in memory."""

    def __init__(self, *keys: ApiKey) -> None:
        self.keys = keys
        self.reads = 0
        self.noted: list[Mapping[str, datetime]] = []

    async def list_all(self) -> tuple[ApiKey, ...]:
        self.reads += 1
        return self.keys

    async def record_use(self, moments: Mapping[str, datetime]) -> None:
        self.noted.append(moments)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf(ADA)


@pytest.fixture
async def cache(shelf: Shelf) -> ApiKeyCache:
    it = ApiKeyCache(shelf, Secret(ADMIN_KEY), FakeClock())  # type: ignore[arg-type]
    await it.refresh()
    return it


def recorded(calls: list[tuple[Any, ...]], real: Callable[..., Any]) -> Callable[..., Any]:
    """Return `real` with a record of the arguments of each call."""

    def call(*args: Any) -> Any:
        calls.append(args)
        return real(*args)

    return call


@pytest.mark.parametrize(
    "key",
    [
        SECRET,
        ADMIN_KEY,
        "",
        "x",
        "ghk_",
        f"ghk_adaadaad_{'0' * 49}",
        f"ghk_bobbobbo_{'0' * 49}",
        "k" * 10_000,
    ],
    ids=lambda it: it[:16],
)
async def test_every_key_costs_one_hash_and_two_comparisons(
    cache: ApiKeyCache, shelf: Shelf, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[tuple[Any, ...]] = []
    compared: list[tuple[Any, ...]] = []
    digest, compare = digest_of, hmac.compare_digest
    monkeypatch.setattr(key_cache, "digest_of", recorded(hashed, digest))
    monkeypatch.setattr(hmac, "compare_digest", recorded(compared, compare))
    cache.authenticate(key.encode())
    assert (len(hashed), len(compared), shelf.reads) == (1, 2, 1)
    assert all(len(a) == len(b) == len(DUMMY_DIGEST) for a, b in compared)


async def test_an_unknown_id_is_compared_with_a_digest_that_nothing_has(
    cache: ApiKeyCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[Any, ...]] = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", recorded(compared, compare))
    assert cache.authenticate(f"ghk_bobbobbo_{'0' * 49}".encode()) is None
    assert compared[-1][1] == DUMMY_DIGEST


async def test_known_keys_are_known(cache: ApiKeyCache) -> None:
    assert cache.authenticate(ADMIN_KEY.encode()) is ADMIN
    caller = cache.authenticate(SECRET.encode())
    assert caller is not None
    assert (caller.key_id, caller.scope) == ("adaadaad", Scope.WRITE)


async def test_a_stolen_digest_opens_nothing(cache: ApiKeyCache) -> None:
    for stolen in (ADA.digest, f"ghk_adaadaad_{ADA.digest}"):
        assert cache.authenticate(stolen.encode()) is None
    assert cache.authenticate(bytes.fromhex(ADA.digest)) is None


async def test_a_revoked_key_is_refused_after_the_refresh(cache: ApiKeyCache, shelf: Shelf) -> None:
    shelf.keys = (replace(ADA, revoked_at=START),)
    assert cache.authenticate(SECRET.encode()) is not None
    await cache.refresh()
    assert cache.authenticate(SECRET.encode()) is None


async def test_while_the_store_is_away_the_keys_stay_known(cache: ApiKeyCache, shelf: Shelf) -> None:
    async def away() -> tuple[ApiKey, ...]:
        raise StoreUnavailable("gone")

    shelf.list_all = away  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await cache.refresh()
    assert cache.authenticate(SECRET.encode()) is not None


async def test_uses_are_noted_together_and_only_if_there_were_any(cache: ApiKeyCache, shelf: Shelf) -> None:
    for _ in range(100):
        cache.authenticate(SECRET.encode())
    cache.authenticate(b"nothing")
    cache.authenticate(ADMIN_KEY.encode())
    await cache.flush_last_used()
    await cache.flush_last_used()
    assert shelf.noted == [{"adaadaad": START}]


async def test_a_refresh_fills_no_bucket(cache: ApiKeyCache, shelf: Shelf) -> None:
    shelf.keys = (replace(ADA, limits=Limits(requests_per_minute=2)),)
    await cache.refresh()
    caller = cache.authenticate(SECRET.encode())
    assert caller is not None
    waits = []
    for _ in range(3):
        waits.append(await cache.wait_s(caller))
        await cache.refresh()
    assert waits == [0.0, 0.0, 30.0]


async def of_one_replica(
    limits: Limits, budgets: MemorySharedLimits, clock: FakeClock
) -> tuple[ApiKeyCache, Caller]:
    """Return a registry that shares its limits, and somebody who has some."""
    cache = ApiKeyCache(Shelf(replace(ADA, limits=limits)), Secret(ADMIN_KEY), clock, budgets)  # type: ignore[arg-type]
    await cache.refresh()
    caller = cache.authenticate(SECRET.encode())
    assert caller is not None
    return cache, caller


@pytest.mark.parametrize("per_minute", [1, 2, 7, 60, 600])
async def test_two_replicas_together_let_a_key_do_what_it_may_and_no_more(per_minute: int) -> None:
    clock = FakeClock()
    budgets, limits = MemorySharedLimits(clock), Limits(requests_per_minute=per_minute)
    both = [await of_one_replica(limits, budgets, clock) for _ in range(2)]
    done = 0
    for _ in range(per_minute):
        for cache, caller in both:
            done += await cache.wait_s(caller) == 0
    assert per_minute - max(1, per_minute // BATCHES_PER_MINUTE) <= done <= per_minute
    # A fifth of a batch a question is more than enough.
    assert budgets.leases <= 2 + 2 * (4 + BATCHES_PER_MINUTE) + per_minute // 4


async def test_a_replica_alone_lets_a_key_do_all_that_it_may_and_a_refresh_or_a_restart_not_more() -> None:
    clock = FakeClock()
    budgets, limits = MemorySharedLimits(clock), Limits(requests_per_minute=60)
    cache, caller = await of_one_replica(limits, budgets, clock)
    waits = []
    for _ in range(61):
        waits.append(await cache.wait_s(caller))
        await cache.refresh()
    assert waits == [*[0.0] * 60, pytest.approx(1)]
    restarted, _ = await of_one_replica(limits, budgets, clock)
    assert await restarted.wait_s(caller) > 0


async def test_a_request_that_cannot_be_counted_does_not_go_on() -> None:
    clock = FakeClock()
    budgets = MemorySharedLimits(clock)
    cache, caller = await of_one_replica(Limits(requests_per_minute=60), budgets, clock)
    budgets.is_away = True
    with pytest.raises(StoreUnavailable):
        await cache.wait_s(caller)


async def test_a_key_without_a_limit_asks_nobody() -> None:
    clock = FakeClock()
    budgets = MemorySharedLimits(clock)
    cache, caller = await of_one_replica(Limits(), budgets, clock)
    assert await cache.wait_s(caller) == 0
    assert budgets.leases == 0
