"""Delivered webhooks are kept for a week, dead letters for a month."""

from __future__ import annotations

from datetime import timedelta

from gpuherd.adapters.sql.delivery_log import SqlDeliveryLog
from gpuherd.adapters.sql.schema import delivery
from gpuherd.domain.delivery import DeliveryState
from gpuherd.ports.store import Change
from gpuherd.usecases.prune_deliveries import PruneDeliveries
from tests.support.builders import a_delivery, a_running_instance
from tests.support.fake_clock import START
from tests.support.herd import Herd


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
