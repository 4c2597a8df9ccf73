"""The engines of a service: who takes which jobs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gpuherd.adapters.sqlite_jobs import SqliteJobs
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.bootstrap.build_cloud import novita_link
from gpuherd.bootstrap.service_lifecycle import build_service
from gpuherd.domain.secret import Secret
from gpuherd.settings import load_settings
from gpuherd.usecases.service.make_jobs import CHECK_HEALTH, RECONCILE_KINDS, SEND_WEBHOOK

pytestmark = pytest.mark.processes


async def test_neither_webhooks_nor_health_rounds_take_the_slots_of_turns(tmp_path: Path) -> None:
    settings, clock = load_settings({"GPUHERD_DATA_DIR": str(tmp_path)}, tmp_path), SystemClock()
    link = novita_link(settings, "http://127.0.0.1:9", Secret("sk_x"), clock, random.Random(5))
    service = await build_service(settings, link, clock)
    assert isinstance(service.engine, SqliteJobs)
    taken = {queue.name: queue.kinds for queue in service.engine._queues}
    await service.stop()
    assert taken == {"rentals": RECONCILE_KINDS, "health": (CHECK_HEALTH,), "webhooks": (SEND_WEBHOOK,)}
