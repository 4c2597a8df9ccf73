"""What was spent long ago is forgotten, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gpuherd.adapters.sql import ledger_tables
from gpuherd.domain.money.usage_span import CostKind
from gpuherd.ports.costs_port import BilledDay
from tests.contracts.conftest import MEMORY
from tests.contracts.costs.test_costs_contract import NOON, SUBJECTS, USD, report, span

DAY = timedelta(days=1)


@pytest.fixture
def kept(request: pytest.FixtureRequest, database_url: str) -> Any:
    if database_url == MEMORY:
        pytest.skip("memory forgets nothing")
    return request.getfixturevalue("store")


async def test_spans_days_bills_and_subjects_go_together(kept):
    old = NOON - 40 * DAY
    await kept.write_spans([span(begin=old, hours=1), span("m-bob", old), span("m-other", hours=1)], SUBJECTS)
    await kept.costs.save_bill(old.date(), [BilledDay(old.date(), "m-ada", "gpu", 1, 1, 1, 0, NOON)])
    assert await kept.retention.prune_costs(NOON - 30 * DAY) == 1
    assert await kept.costs.spans_of("inst_ada") == []
    assert await kept.costs.bill(old.date(), NOON.date()) == []
    assert [it.kind for it in await kept.costs.spans_of("inst_bob")] == [CostKind.GPU]
    found = await report(kept)
    assert found.waste.unbound == USD
    keys = {row.key for row in await kept.rows(ledger_tables.ledger_subject)}
    assert keys == {"inst_bob", "machine m-other"}
    assert {row.owner for row in await kept.rows(ledger_tables.cost_centre)} == {"key-bob", None}
    assert {row.value for row in await kept.rows(ledger_tables.ledger_label)} == {"blue", "x"}


@pytest.mark.proves("L8")
async def test_what_has_ended_since_is_kept_whole(kept):
    await kept.write_spans([span(begin=NOON - 40 * DAY, hours=20 * 24)], SUBJECTS)
    assert await kept.retention.prune_costs(NOON - 30 * DAY) == 0
    assert len(await kept.costs.spans_of("inst_ada")) == 1
