"""What is too old is forgotten, each kind after its own time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import cast

import pytest
import structlog
from structlog.testing import LogCapture

from gpuherd.adapters.sql.service_tables import delivery
from gpuherd.adapters.stores.webhook_store import SqlDeliveryLog
from gpuherd.domain.errors import NotFound
from gpuherd.domain.webhooks.webhook_delivery import DeliveryState
from gpuherd.ports.access_port import AuditPruning
from gpuherd.ports.instance_port import Change, Instances
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.instances.read_instance import ENTRIES_MAX
from gpuherd.usecases.service.prune_records import ManageCaches, PruneDeliveries, PruneRecords
from tests.support.builders import a_delivery, a_running_instance
from tests.support.fake_clock import START, FakeClock
from tests.support.herd import Herd


class NotedRetention:
    """The port `Retention`, which only notes how old is too old."""

    def __init__(self) -> None:
        self.asked: dict[str, timedelta] = {}

    async def prune_claims(self, before: datetime) -> int:
        return self._note("claims", before, 1)

    async def prune_instances(self, before: datetime) -> int:
        return self._note("instances", before, 2)

    async def prune_failed_instances(self, before: datetime) -> int:
        return self._note("failed", before, 16)

    async def prune_account_events(self, before: datetime) -> int:
        return self._note("account events", before, 4)

    async def prune_sessions(self, before: datetime) -> int:
        return self._note("sessions", before, 8)

    async def prune_plans(self, before: datetime) -> int:
        assert "claims" not in self.asked, "a claim tells that its plan is used up, and outlives it"
        return self._note("plans", before, 128)

    async def prune_costs(self, before: datetime) -> int:
        return self._note("costs", before, 64)

    async def prune_audit(self, before: datetime, now: datetime) -> AuditPruning:
        assert now == START
        return AuditPruning(self._note("audit", before, 32))

    def _note(self, what: str, before: datetime, count: int) -> int:
        self.asked[what] = START - before
        return count


async def test_each_kind_is_kept_for_its_own_time() -> None:
    retention = NotedRetention()
    assert await PruneRecords(retention, FakeClock())() == 255
    day, week, month = timedelta(days=1), timedelta(days=7), timedelta(days=30)
    assert retention.asked == {
        "plans": day,
        "claims": week,
        "instances": week,
        "failed": month,
        "account events": month,
        "sessions": day,
        "costs": timedelta(days=400),
        "audit": timedelta(days=400),
    }


class TamperedRetention(NotedRetention):
    """The audit log was changed at entry 7."""

    async def prune_audit(self, before: datetime, now: datetime) -> AuditPruning:
        return AuditPruning(0, broken_at=7)


@pytest.fixture
def logged() -> Iterator[LogCapture]:
    before, capture = structlog.get_config(), LogCapture()
    structlog.configure(
        processors=[capture], wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING)
    )
    yield capture
    structlog.configure(**before)


async def test_a_broken_chain_that_pruning_comes_upon_is_told_in_the_log(logged: LogCapture) -> None:
    await PruneRecords(TamperedRetention(), FakeClock())()
    assert [(it["event"], it["entry"]) for it in logged.entries] == [("audit.chain_broken", 7)]


async def test_each_is_forgotten_in_its_time(herd: Herd) -> None:
    pending = a_delivery(sequence=1, tries=3, tried_at=START)
    delivered = a_delivery(sequence=2, state=DeliveryState.DELIVERED, tried_at=START)
    dead = a_delivery(sequence=3, state=DeliveryState.DEAD, tried_at=START)
    await herd.instances.add(Change(a_running_instance(), deliveries=(pending, delivered, dead)))
    prune = PruneDeliveries(SqlDeliveryLog(herd.database, herd.clock), herd.clock)
    left = []
    for days in (6.9, 0.2, 22.8, 0.2):
        await herd.clock.sleep(timedelta(days=days).total_seconds())
        await prune()
        left.append({row.id for row in herd.rows(delivery)})
    everything = {pending.id, delivered.id, dead.id}
    assert left == [everything, {pending.id, dead.id}, {pending.id, dead.id}, {pending.id}]


def two_caches(clock: FakeClock) -> tuple[Cache[str | None, int], Cache[str | None, int], ManageCaches]:
    short = Cache[str | None, int](clock, 10, 5, "short")
    long = Cache[str | None, int](clock, 100, 5, "long")
    for cache in (short, long):
        cache.put("a", 1)
        cache.put(None, 2)
    return short, long, ManageCaches((short, long), cast(Instances, None))


async def test_cleanup_counts_what_it_throws_out_of_all_caches(clock: FakeClock) -> None:
    short, long, tend = two_caches(clock)
    await clock.sleep(10)
    assert await tend.cleanup() == 2
    assert (short.keys(), long.keys()) == ((), ("a", None))
    await clock.sleep(90)
    assert await tend.cleanup() == 2


def test_clearing_an_unknown_cache_clears_none(clock: FakeClock) -> None:
    short, long, tend = two_caches(clock)
    with pytest.raises(NotFound) as refused:
        tend.clear("middle")
    assert refused.value.code == "CACHE_NOT_FOUND"
    assert (len(short.keys()), len(long.keys())) == (2, 2)
    assert tend.clear("long") == ["long"]
    assert (len(short.keys()), len(long.keys())) == (2, 0)


async def test_tracked_are_all_instances_that_are_not_deleted(herd: Herd) -> None:
    await herd.launch("one")
    await herd.launch("two")
    stats = await herd.manage_caches.stats()
    assert stats.tracked_instances == 2
    # The list of all templates has no id of its own.
    await herd.catalogue.templates()
    shown = (await herd.manage_caches.stats()).caches["templates"].cached_ids
    assert shown[0] == "all"


@pytest.mark.proves("F57")
async def test_the_caches_of_instances_forget_the_least_used_when_they_are_full(herd: Herd) -> None:
    instance = await herd.launch()
    details, states = herd.services.instance_cache.caches
    await herd.details(instance.id)
    body = details.get(instance.id)
    for n in range(ENTRIES_MAX):
        details.put(str(n), body)
        states.put(str(n), instance)
    assert (details.stats.size, details.stats.evictions) == (ENTRIES_MAX, 1)
    assert (states.stats.size, states.stats.evictions) == (ENTRIES_MAX, 1)
    assert details.get_stale(instance.id) is None
