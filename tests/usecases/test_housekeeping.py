"""What is too old is forgotten, each kind after its own time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
import structlog
from structlog.testing import LogCapture

from gpuherd.adapters.sql.service_tables import delivery
from gpuherd.domain.errors import NotFound
from gpuherd.domain.webhooks.webhook_delivery import DeliveryState
from gpuherd.ports.access_port import AuditPruning
from gpuherd.ports.instance_port import Change
from gpuherd.usecases.instances.read_instance import ENTRIES_MAX
from gpuherd.usecases.money.report_costs import BALANCE_TTL_S, VOLUMES_TTL_S
from gpuherd.usecases.service.prune_records import (
    RetentionPeriods,
    clear_caches,
    clear_expired,
    prune_deliveries,
    prune_records,
    read_cache_stats,
)
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
    assert await prune_records(retention, FakeClock(), RetentionPeriods()) == 255
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
    await prune_records(TamperedRetention(), FakeClock(), RetentionPeriods())
    assert [(it["event"], it["entry"]) for it in logged.entries] == [("audit.chain_broken", 7)]


async def test_each_is_forgotten_in_its_time(herd: Herd) -> None:
    pending = a_delivery(sequence=1, tries=3, tried_at=START)
    delivered = a_delivery(sequence=2, state=DeliveryState.DELIVERED, tried_at=START)
    dead = a_delivery(sequence=3, state=DeliveryState.DEAD, tried_at=START)
    await herd.instances.add(Change(a_running_instance(), deliveries=(pending, delivered, dead)))
    left = []
    for days in (6.9, 0.2, 22.8, 0.2):
        await herd.clock.sleep(timedelta(days=days).total_seconds())
        await prune_deliveries(herd.services)
        left.append({row.id for row in herd.rows(delivery)})
    everything = {pending.id, delivered.id, dead.id}
    assert left == [everything, {pending.id, dead.id}, {pending.id, dead.id}, {pending.id}]


async def test_cleanup_counts_what_it_throws_out_of_all_caches(herd: Herd) -> None:
    caches = herd.services.money_caches
    caches.volumes.put("all", ())
    caches.balance.put("all", (Decimal(1), START))
    await herd.clock.sleep(VOLUMES_TTL_S)
    assert await clear_expired(herd.services) == 1
    assert (caches.volumes.keys(), caches.balance.keys()) == ((), ("all",))
    await herd.clock.sleep(BALANCE_TTL_S)
    assert await clear_expired(herd.services) == 1


def test_clearing_an_unknown_cache_clears_none(herd: Herd) -> None:
    caches = herd.services.money_caches
    caches.volumes.put("all", ())
    caches.balance.put("all", (Decimal(1), START))
    with pytest.raises(NotFound) as refused:
        clear_caches(herd.services, "middle")
    assert refused.value.code == "CACHE_NOT_FOUND"
    assert clear_caches(herd.services, "volumes") == ["volumes"]
    assert (caches.volumes.keys(), caches.balance.keys()) == ((), ("all",))


async def test_tracked_are_all_instances_that_are_not_deleted(herd: Herd) -> None:
    await herd.launch("one")
    await herd.launch("two")
    stats = await read_cache_stats(herd.services)
    assert stats.tracked_instances == 2
    # The list of all templates has no id of its own.
    await herd.catalogue.templates()
    shown = (await read_cache_stats(herd.services)).caches["templates"].cached_ids
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
