"""A machine that a list has shown and that has no span yet is metered from the next list on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.rental_tables import sighting
from gpuherd.adapters.sql.schema_migration import migrate
from gpuherd.adapters.sql.sql_types import to_micros
from gpuherd.adapters.stores.ledger_store import SqlCosts
from gpuherd.adapters.stores.observation_store import SqlObservations, sighting_row
from gpuherd.domain.cloud.machine import Listing, Machine, Phase
from gpuherd.domain.money.meter_reading import Tariff
from gpuherd.domain.money.period import Period
from gpuherd.domain.money.usage_span import CostKind, CostSpan, Edge, nano_usd
from gpuherd.ports.costs_port import CostQuery, CostReport, GroupBy
from gpuherd.usecases.money import meter_costs
from gpuherd.usecases.money.meter_costs import MeterMemory
from tests.support.builders import a_list, a_machine, a_sighting
from tests.support.fake_clock import START, FakeClock
from tests.support.sql.databases import sqlalchemy_url

DAY = timedelta(days=1)
PRICES = Tariff({("spot", "p", "c"): Decimal(1)})
RUNNING = replace(
    a_machine(1), phase=Phase.RUNNING, product_id="p", cluster_id="c", billing_mode="spot", gpu_num=1
)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def unmetered(request: pytest.FixtureRequest, path: Path) -> Iterator[Database]:
    """A database that has seen a machine run, and holds no span of it."""
    url = f"sqlite:///{path}"
    if request.param == "postgres":
        libpq_url = request.getfixturevalue("postgres_url")
        url = sqlalchemy_url(libpq_url)
    with closing(Database(url)) as database:
        migrate(database)
        database.write_now(_see)
        yield database


def _see(connection: sa.Connection) -> None:
    connection.execute(sa.insert(sighting).values(sighting_row(a_sighting(RUNNING), None)))
    connection.execute(
        sa.text(
            "INSERT INTO list_record (started_at, finished_at, complete, witness, machines) "
            "VALUES (:at, :at, :yes, 'seen', 1)"
        ),
        {"at": to_micros(START), "yes": True},
    )


async def _tariff(_is_needed: bool) -> Tariff:
    return PRICES


async def look(database: Database, clock: FakeClock, *machines: Machine) -> None:
    """Make a list of these machines, of which nothing has changed, as the observer does."""
    observations = SqlObservations(database)
    meters = MeterMemory(
        observations=observations, clock=clock, boot_id="boot", installation="i", tariff=_tariff
    )
    known = await observations.all_known()
    await meters.load(known)
    record = replace(a_list(clock.now() - START), reading=meters.read_clocks())
    listing = Listing(machines, True, record.started_at, record.finished_at)
    prepared = await meters.prepare(known, listing, record, (), timedelta(seconds=1))
    await observations.record(record, (), (), prepared)


async def ledger(database: Database, clock: FakeClock) -> tuple[list[CostSpan], CostReport]:
    costs = SqlCosts(database)
    spans = [it.span for it in await costs.open_spans()]
    query = CostQuery(Period(START - DAY, START + 2 * DAY), GroupBy.INSTANCE)
    return spans, await costs.report(query, clock.now())


@pytest.mark.proves("L11")
async def test_what_ran_before_the_ledger_is_metered_from_the_first_look_on(unmetered: Database) -> None:
    clock = FakeClock(START + DAY)
    await look(unmetered, clock, RUNNING)
    await clock.advance(1.0)
    first_look = clock.now()
    (span,), _ = await ledger(unmetered, clock)
    assert (span.cloud_id, span.kind) == (RUNNING.cloud_id, CostKind.GPU)
    assert span.began == Edge(first_look, first_look)
    await clock.advance(3600.0)
    _, report = await ledger(unmetered, clock)
    assert report.amount == nano_usd(Decimal(1))


async def test_very_many_of_them_are_metered_with_one_list_after_the_other(
    unmetered: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(RUNNING, cloud_id="other", name="other")
    unmetered.write_now(
        lambda c: c.execute(sa.insert(sighting).values(sighting_row(a_sighting(other), None)))
    )
    monkeypatch.setattr(meter_costs, "FIRST_LOOKS_MAX", 1)
    clock = FakeClock(START + DAY)
    for expected in (1, 2, 2):
        await look(unmetered, clock, RUNNING, other)
        await clock.advance(60.0)
        spans, _ = await ledger(unmetered, clock)
        assert len(spans) == expected
