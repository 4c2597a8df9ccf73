"""A herd that is already there: a world full of machines, and a database that remembers renting them all.

What the database knows of the machines is what our own adapter read from that very world, so that a server
which starts on it finds nothing new.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import sqlalchemy as sa

from bench.cloud import REQUEST, new_world, rent_all, serve_world
from gpuherd.adapters.sql import rental_tables
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema_migration import migrate
from gpuherd.adapters.stores import job_store
from gpuherd.adapters.stores.installation_store import SqlFlags
from gpuherd.adapters.stores.instance_rows import instance_row
from gpuherd.adapters.stores.observation_store import SqlObservations
from gpuherd.adapters.stores.row_codec import attempt_row, event_row
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.bootstrap.build_cloud import novita_link
from gpuherd.domain.cloud.machine import Listing, Machine, Phase
from gpuherd.domain.cloud.observation import ListRecord, ObservedMachine, Witness
from gpuherd.domain.cloud.offer import NOVITA_DISK
from gpuherd.domain.instance.instance import (
    ID_PREFIX,
    Goal,
    Instance,
    Rental,
    Status,
)
from gpuherd.domain.instance.instance_event import CREATED, Event
from gpuherd.domain.instance.launch_spec import LaunchSpec
from gpuherd.domain.instance.rent_attempt import Attempt, AttemptState, Tag, cloud_name
from gpuherd.domain.secret import Secret
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.settings import load_settings
from gpuherd.simulator.simulator_control import apply_scenario
from gpuherd.simulator.world import World
from gpuherd.usecases.money.report_costs import DISK_TARIFF, tariff_text
from gpuherd.usecases.service.make_jobs import JobFactory

INSTALLATION = "be9c4be9"
# Boots are over before anybody looks.
INSTANT_BOOT_SPEED = 1e6
RENTAL = Rental("4090.16c62g", "RTX 4090 24GB", "US-CA-06", "us-ca-6", Decimal("0.35"), REQUEST.image_url)


@dataclass(frozen=True)
class Seeded:
    """Files to start from; copy the data directory, since a server writes to it."""

    data_dir: Path
    world: Path
    instance_id: str


async def seed(place: Path, instances: int, moving: int) -> Seeded:
    """Prepare so many instances; the last `moving` of them are still pulling their image, and will be."""
    clock, rng = SystemClock(), random.Random(3)
    ids = Ids(clock, rng)
    instance_ids = [ids.new(ID_PREFIX) for _ in range(instances)]
    world = _populate(instance_ids, moving)
    listing = await _list(world, place)
    data_dir = place / "data"
    await remember(f"sqlite:///{data_dir / 'gpuherd.db'}", listing, clock, ids)
    path = place / "world.json"
    path.write_text(json.dumps(world.dump()))
    return Seeded(data_dir, path, instance_ids[0])


async def remember(url: str, listing: Listing, clock: Clock, ids: Ids) -> None:
    """Make a database, in SQLAlchemy's words, that has rented all of these machines an hour ago."""
    database = Database(url)
    try:
        await asyncio.to_thread(migrate, database)
        SqlFlags(database).ensure("installation", INSTALLATION)
        # As the last process of this version has left it: a restart is no upgrade.
        SqlFlags(database).ensure(DISK_TARIFF, tariff_text(NOVITA_DISK))
        await _remember_list(database, listing)
        await _remember_instances(database, listing, clock.now(), ids)
    finally:
        database.close()


def _populate(instance_ids: list[str], moving: int) -> World:
    world = new_world(INSTANT_BOOT_SPEED)
    for n, instance_id in enumerate(instance_ids):
        if n == len(instance_ids) - moving:
            apply_scenario(world, "endless-pull")
        rent_all(world, [machine_name(n, instance_id)])
    apply_scenario(world, "calm")
    return world


def machine_name(n: int, instance_id: str) -> str:
    """Return under which name the cloud knows the machine of an instance."""
    return cloud_name(f"job-{n}", _tag(instance_id))


def _tag(instance_id: str) -> Tag:
    return Tag(INSTALLATION, instance_id.removeprefix(ID_PREFIX), 1)


async def _list(world: World, place: Path) -> Listing:
    runner = await serve_world(world, 0)
    try:
        return await list_all(f"http://127.0.0.1:{runner.addresses[0][1]}", place)
    finally:
        await runner.cleanup()


async def list_all(url: str, place: Path) -> Listing:
    """Return the machines of a cloud as our adapter sees them."""
    settings = load_settings({"NOVITA_RATE_LIMIT": "0", "GPUHERD_WATCH_BUDGET": "0"}, place)
    link = novita_link(settings, url, Secret("sk_bench"), SystemClock(), random.Random(4))
    try:
        return await link.cloud.list_machines()
    finally:
        await link.close()


async def _remember_list(database: Database, listing: Listing) -> None:
    # Older than the herd's witnesses must be, as in a service that has run for a while.
    seen_at = listing.started_at - timedelta(hours=1)
    record = ListRecord(seen_at, seen_at, True, Witness.NONE, len(listing.machines))
    observations = [ObservedMachine(machine, seen_at, seen_at) for machine in listing.machines]
    await SqlObservations(database).record(record, observations, ())


async def _remember_instances(database: Database, listing: Listing, now: datetime, ids: Ids) -> None:
    # Made before the transaction begins: a server gives up on one in which nothing happens for long.
    herd = [_instance(machine, now) for machine in listing.machines]
    rows = [{**instance_row(it), "version": it.version} for it in herd]
    attempts = [attempt_row(_attempt(it)) for it in herd]
    events = [event_row(Event(it.id, 1, CREATED, it.created_at, reason="accepted")) for it in herd]
    job_factory = JobFactory(ids, max_attempts=3)
    turns = [job_factory.reconcile_job(it) for it in herd if not it.settled]

    def work(connection: sa.Connection) -> None:
        connection.execute(sa.insert(rental_tables.instance), rows)
        connection.execute(sa.insert(rental_tables.attempt), attempts)
        connection.execute(sa.insert(rental_tables.event), events)
        job_store.insert_jobs(connection, turns, now)

    await database.write(work)


def _instance(machine: Machine, now: datetime) -> Instance:
    name, _, tag = machine.name.partition("--")
    runs = machine.phase is Phase.RUNNING
    created_at = now - timedelta(hours=1)
    return Instance(
        id=ID_PREFIX + tag.split("-")[2],
        name=name,
        wish=LaunchSpec(RENTAL.product_name, "101"),
        goal=Goal.RUNNING,
        status=Status.RUNNING if runs else Status.CREATING,
        created_at=created_at,
        deadline=now + timedelta(days=1),
        estimated_ready_at=created_at + timedelta(minutes=3),
        labels={"team": "bench"},
        cloud_id=machine.cloud_id,
        rental=RENTAL,
        ports=machine.ports,
        tag_verified=True,
        started_at=created_at if runs else None,
        ready_at=created_at + timedelta(minutes=1) if runs else None,
        settled=runs,
        sequence=1,
    )


def _attempt(it: Instance) -> Attempt:
    return Attempt(
        instance_id=it.id,
        n=1,
        tag=str(_tag(it.id)),
        state=AttemptState.BOUND,
        product_id=RENTAL.product_id,
        product_name=RENTAL.product_name,
        region=RENTAL.region,
        cluster_id=RENTAL.cluster_id,
        gpu_hourly_usd=RENTAL.gpu_hourly_usd,
        sent_at=it.created_at,
        boot_id="boot_bench",
        image_url=RENTAL.image_url,
        closed_at=it.created_at,
        cloud_id=it.cloud_id,
    )
