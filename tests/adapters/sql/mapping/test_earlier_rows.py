"""Rows of the version before, which knew neither `waiting_for` nor `cause`: they are read as if it had."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.rental_tables import event, instance
from gpuherd.adapters.sql.schema_migration import migrate
from gpuherd.adapters.stores.installation_store import SqlFlags
from gpuherd.adapters.stores.instance_store import SqlInstances
from gpuherd.adapters.stores.row_codec import event_row, instance_row
from gpuherd.domain.cloud.machine import ReclaimNotice
from gpuherd.domain.cloud.offer import NOVITA_DISK
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import Waiting, WaitingFor
from gpuherd.domain.instance.instance_event import Cause, CauseCode
from gpuherd.domain.instance.launch_spec import LaunchSpec
from gpuherd.usecases.money.report_costs import RepriceDisks
from tests.adapters.sql.schema.old_database import BOTH, LATER_COLUMNS, left_at
from tests.support.builders import a_running_instance, an_event, an_instance
from tests.support.fake_clock import FakeClock

NEW_FIELDS = ("status_since", "waiting_for")


@pytest.fixture(params=BOTH)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database as the version before left it, brought up to date."""
    with left_at("0009", request, tmp_path / "herd.db") as database:
        yield database


def without(row: dict[str, Any], *keys: str) -> dict[str, Any]:
    doc = {key: value for key, value in json.loads(row["doc"]).items() if key not in keys}
    columns = {name: value for name, value in row.items() if name not in LATER_COLUMNS}
    return {**columns, "doc": json.dumps(doc)}


async def remembered(database: Database, reason: str) -> SqlInstances:
    """Write an instance with this reason as the version before did, then migrate."""
    row = {**without(instance_row(an_instance(reason=reason)), *NEW_FIELDS), "version": 0}
    database.write_now(lambda c: c.execute(sa.insert(instance), row).rowcount)
    migrate(database)
    return SqlInstances(database, FakeClock())


@pytest.mark.parametrize(
    ("reason", "waiting"),
    [
        ("waiting for the cloud: it is away: really", Waiting(WaitingFor.CLOUD, "it is away: really", None)),
        ("waiting for capacity until 2026-01-01T00:00:00Z: none", Waiting(WaitingFor.CAPACITY, "none", None)),
        ("creates are blocked: tags get lost", Waiting(WaitingFor.CREATES, "tags get lost", None)),
        ("renting X in Y", None),
        ("", None),
    ],
)
async def test_what_an_instance_waited_for_is_still_known(
    database: Database, reason: str, waiting: Waiting | None
) -> None:
    instances = await remembered(database, reason)
    read = await instances.get(an_instance().id)
    assert (read.reason, read.waiting_for, read.status_since) == (reason, waiting, None)


@pytest.mark.parametrize(("disk_gb", "usd"), [(60, "0.35"), (300, "0.40")])
async def test_a_machine_that_was_rented_before_disks_were_counted_shows_its_whole_price(
    database: Database, disk_gb: int, usd: str
) -> None:
    it = a_running_instance(wish=LaunchSpec("RTX 4090 24GB", "101", disk_gb=disk_gb), owner="holder")
    row = {**without(instance_row(it), *NEW_FIELDS, "disk_usd"), "micro_usd": 350_000, "version": 0}
    assert "disk" not in str(json.loads(row["doc"])["rental"])
    database.write_now(lambda c: c.execute(sa.insert(instance), row).rowcount)
    migrate(database)
    instances = SqlInstances(database, FakeClock())
    assert (await instances.get(it.id)).hourly_usd == Decimal(usd)
    # What its key spends is summed up by the database, from columns that the first start brings up to date.
    await RepriceDisks(instances=instances, flags=SqlFlags(database), disk=NOVITA_DISK)()
    spent = await database.read(lambda c: c.execute(sa.select(instance.c.micro_usd)).scalar_one())
    assert spent == int(Decimal(usd) * 1_000_000)


async def test_a_reclaim_that_was_told_with_its_time_is_still_known(database: Database) -> None:
    at = FakeClock().now()
    it, untimed = (a_running_instance(n, reclaim=ReclaimNotice(at, t, at)) for n, t in ((1, at), (2, None)))
    rows = [{**without(instance_row(one), *NEW_FIELDS, "reclaim"), "version": 0} for one in (it, untimed)]
    database.write_now(lambda c: c.execute(sa.insert(instance), rows).rowcount)
    migrate(database)
    instances = SqlInstances(database, FakeClock())
    assert (await instances.get(it.id)).loss_expected_at == at
    assert (await instances.get(untimed.id)).reclaim is None, "nothing is known of it: it is told anew"


@pytest.mark.parametrize(
    ("kind", "reason", "cause"),
    [
        ("instance.starting", "asked to start", Cause(CauseCode.START_REQUESTED)),
        ("instance.starting", "the machine is starting", None),
        ("instance.stopping", "asked to stop", Cause(CauseCode.STOP_REQUESTED)),
        (instance_event.DELETING, "asked to delete", Cause(CauseCode.DELETE_REQUESTED)),
        (instance_event.WAITING, "waiting for the cloud: away", Cause(CauseCode.WAITING_FOR_CLOUD, "away")),
        (instance_event.WAITING, "creates are blocked: look", Cause(CauseCode.WAITING_FOR_CREATES, "look")),
        # Words that only sound like it.
        (instance_event.FAILED, "asked to start", None),
        (instance_event.FAILED, "waiting for the cloud: away", None),
    ],
)
async def test_why_an_event_happened_is_still_known(
    database: Database, kind: str, reason: str, cause: Cause | None
) -> None:
    row = event_row(an_event(type=kind, reason=reason))
    # The columns that it had.
    row = {key: row[key] for key in ("instance_id", "sequence", "type", "at", "doc")}
    database.write_now(lambda c: c.execute(sa.insert(event), row).rowcount)
    migrate(database)
    (read,) = await SqlInstances(database, FakeClock()).events(an_event().instance_id)
    assert (read.type, read.reason, read.cause) == (kind, reason, cause)


async def test_what_is_written_now_keeps_its_fields_whatever_the_words_say(database: Database) -> None:
    migrate(database)
    waits = an_instance(reason="abc", waiting_for=Waiting(WaitingFor.CAPACITY, "x", FakeClock().now()))
    told = an_event(
        type=instance_event.WAITING, reason="abc", cause=Cause(CauseCode.WAITING_FOR_CAPACITY, "x")
    )
    silent = an_event(sequence=2, type=instance_event.WAITING)

    def write(connection: sa.Connection) -> int:
        connection.execute(sa.insert(event), [event_row(told), event_row(silent)])
        return connection.execute(sa.insert(instance), {**instance_row(waits), "version": 0}).rowcount

    database.write_now(write)
    instances = SqlInstances(database, FakeClock())
    assert (await instances.get(waits.id)).waiting_for == waits.waiting_for
    assert await instances.events(waits.id) == (told, silent)


def test_the_version_before_reads_the_events_of_this_one() -> None:
    """It hands every key of the document to its `Event`, so there must be none that it does not know."""
    row = event_row(an_event(cause=Cause(CauseCode.START_REQUESTED)))
    assert set(json.loads(row["doc"])) == {"actor", "reason", "before", "after", "details"}
