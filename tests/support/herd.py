"""A whole gpuherd in one thread, on a simulated cloud and a clock that jumps: minutes pass in microseconds.

The same use cases, the same SQL store on a real SQLite file; only the engine is replaced by a loop that runs
whatever is due, in the engine's order.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.metrics.metered_leases import MeteredLeases
from gpuherd.adapters.sql.flags import SqlFlags
from gpuherd.adapters.sql.instances.leases import SqlInstanceLeases
from gpuherd.adapters.sql.instances.observations import SqlObservations
from gpuherd.adapters.sql.jobs.store import SqlJobs
from gpuherd.adapters.sql.orphans.store import SqlOrphans
from gpuherd.adapters.sql.schema import tables as schema
from gpuherd.adapters.sql.schema.queue_table import queue
from gpuherd.adapters.sql.schema.tables import job
from gpuherd.adapters.sql.webhooks.endpoints import SqlWebhookEndpoints
from gpuherd.adapters.sql.webhooks.outbox import SqlOutbox
from gpuherd.bootstrap.metrics import MeteredInstances
from gpuherd.clock import Clock, Ids
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.domain.instance.health import EndpointHealth, HealthCategory
from gpuherd.domain.instance.health_check import HealthCheck
from gpuherd.domain.instance.instance import Instance, Wish
from gpuherd.domain.webhooks.key_ring import KeyRing
from gpuherd.entrypoints.plane import OrphanServices
from gpuherd.jobs.outcome import Done
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.metrics import Meter, NullMeter
from gpuherd.ports.orphans import Orphans
from gpuherd.ports.webhooks import DeliveryResult, WebhookEndpoints, WebhookSender
from gpuherd.resilience.host_gate import HostGate
from gpuherd.simulator.cloud import SimulatedCloud
from gpuherd.simulator.world.world import World
from gpuherd.usecases.cloud.catalogue import CatalogueCache
from gpuherd.usecases.cloud.observe import ObserveCloud
from gpuherd.usecases.cloud.sync import SyncCloud
from gpuherd.usecases.events.change_hub import ChangeHub
from gpuherd.usecases.events.record import EventRecorder
from gpuherd.usecases.housekeeping import ManageCaches
from gpuherd.usecases.instances.change_goal import ChangeGoal
from gpuherd.usecases.instances.comprehensive import ListComprehensive
from gpuherd.usecases.instances.find import FindInstance
from gpuherd.usecases.instances.launch import LaunchInstance, LaunchRequest
from gpuherd.usecases.instances.read import ReadInstance
from gpuherd.usecases.instances.region_rules import RegionRules
from gpuherd.usecases.jobs.kinds import RECONCILE_KINDS, SEND_WEBHOOK, JobFactory
from gpuherd.usecases.jobs.run import RunJob
from gpuherd.usecases.jobs.sweep import Sweep
from gpuherd.usecases.orphans.adopt import AdoptOrphan
from gpuherd.usecases.orphans.collect import CollectOrphans
from gpuherd.usecases.orphans.events import OrphanEvents
from gpuherd.usecases.orphans.execute_order import ExecuteOrphanOrder
from gpuherd.usecases.orphans.find import FindOrphan
from gpuherd.usecases.orphans.ledger import UpdateOrphanLedger
from gpuherd.usecases.orphans.order import OrderOrphan
from gpuherd.usecases.reconcile.advance import AdvanceInstance
from gpuherd.usecases.reconcile.apply_step import ApplyStep
from gpuherd.usecases.reconcile.check_health import CheckHealth
from gpuherd.usecases.reconcile.rent import UNKNOWN_OUTCOMES_MAX, RentMachine
from gpuherd.usecases.reconcile.resolve_attempt import ResolveAttempt
from gpuherd.usecases.reconcile.verify_tag import VerifyTag
from gpuherd.usecases.webhooks.deliver import DeliverWebhook
from gpuherd.usecases.webhooks.endpoints import EndpointCache
from tests.support.fake_clock import FakeClock
from tests.support.inline_database import InlineDatabase
from tests.support.no_endpoints import NoEndpoints

PRODUCT = "RTX 4090 24GB"
TEMPLATE = "101"
OBSERVE = timedelta(seconds=2)
SWEEP = timedelta(seconds=5)
COLLECT = timedelta(seconds=10)
ROOT_KEY = Secret("root-key-of-the-herd-that-no-database-holds")
DUE = (
    sa.select(queue)
    .where(queue.c.execute_after <= sa.bindparam("now", type_=queue.c.execute_after.type))
    .order_by(queue.c.priority.desc(), queue.c.id)
    .limit(1)
)
NEXT_DUE = sa.select(sa.func.min(queue.c.execute_after))
RULES = RegionRules("CN-HK-01", ("AS-SGP-02", "CN-HK-01", "AS-IN-01"))


@dataclass
class Receiver:
    """Stands for the user's webhook endpoint."""

    accepts: Callable[[str], bool] = lambda _: True
    got: list[tuple[str, bytes]] = field(default_factory=list)
    tried: list[tuple[str, bytes]] = field(default_factory=list)
    # Another receiver that takes its place.
    instead: WebhookSender | None = None

    async def send(
        self, url: str, event_id: str, body: bytes, now: datetime, secrets: Sequence[Secret] | None = None
    ) -> DeliveryResult:
        self.tried.append((event_id, body))
        if self.instead is not None:
            return await self.instead.send(url, event_id, body, now, secrets)
        if not self.accepts(url):
            return DeliveryResult(False, 503, "http_5xx", "answered 503", None, 0.0)
        self.got.append((event_id, body))
        return DeliveryResult(True, 200, "ok", "", None, 0.0)


class FakeProber:
    """Stands for the applications on the machines: up unless a test says otherwise."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_up: Callable[[PortMapping], bool] = lambda _: True
        self.looks = 0

    async def probe(self, port: PortMapping, check: HealthCheck) -> EndpointHealth:
        self.looks += 1
        category = HealthCategory.OK if self.is_up(port) else HealthCategory.BAD_GATEWAY
        return EndpointHealth.seen(port, category, "the port answered 502", self._clock.now())


class Herd:
    """Everything that `bootstrap.service` builds, held by its parts."""

    tables = schema
    wish = Wish(product_name=PRODUCT, template_id=TEMPLATE)
    breaker_state = "CLOSED"
    new_database: Callable[[Path], InlineDatabase] = InlineDatabase
    endpoints: WebhookEndpoints = NoEndpoints()
    orphans: Orphans

    def __init__(
        self,
        path: Path,
        world: World,
        clock: FakeClock,
        *,
        seed: int = 1,
        cloud: Cloud | None = None,
        settling: SettlingPolicy | None = None,
        max_wait: timedelta = timedelta(seconds=1200),
        meter: Meter | None = None,
        unknown_outcomes_max: int = UNKNOWN_OUTCOMES_MAX,
        look_every: timedelta = OBSERVE,
    ):
        self._look_every = look_every
        self.world, self.clock = world, clock
        self.chance = random.Random(seed)
        self.ids = Ids(clock, self.chance)
        self.cloud: Cloud = cloud or SimulatedCloud(world)
        self.receiver = Receiver()
        self.meter = meter or NullMeter()
        self.settling = settling or SettlingPolicy()
        self.hub = ChangeHub(clock)
        self._open(path)
        self.installation = self.flags.ensure("installation", f"{self.chance.getrandbits(32):08x}")
        self.job_factory = JobFactory(self.ids, 3)
        self.keys = KeyRing([ROOT_KEY])
        self.endpoint_cache = EndpointCache(self.endpoints, self.keys, clock)
        self.event_recorder = EventRecorder(clock, self.ids, self.job_factory, self.endpoint_cache.current)
        self.catalogue = CatalogueCache(self.cloud, clock)
        self.observer = ObserveCloud(
            self.cloud,
            self.observations,
            self.book,
            self.job_factory,
            clock,
            self.settling,
            timedelta(seconds=30),
            lambda: self.breaker_state,
        )
        rent = RentMachine(
            self.turns,
            self.cloud,
            self.catalogue,
            self.event_recorder,
            self.flags,
            clock,
            self.installation,
            "boot",
            self.observer.has_listed,
            unknown_outcomes_max,
        )
        resolve = ResolveAttempt(self.turns, self.event_recorder, rent, clock, self.settling)
        verify_tag = VerifyTag(self.turns, self.event_recorder, self.flags)
        self.prober = FakeProber(clock)
        check_health = CheckHealth(self.prober, clock, self.chance)
        apply_step = ApplyStep(
            self.turns, self.cloud, self.event_recorder, rent, resolve, check_health, verify_tag, clock
        )
        self.advance = AdvanceInstance(
            self.turns, self.cloud, self.job_factory, apply_step, verify_tag, clock, self.settling
        )
        self.gate = HostGate(clock)
        deliver = DeliverWebhook(
            self.outbox,
            self.receiver,
            self.endpoint_cache,
            self.gate,
            self.book,
            self.job_factory,
            clock,
            self.chance,
            self.meter,
        )
        handlers = {**dict.fromkeys(RECONCILE_KINDS, self.advance), SEND_WEBHOOK: deliver}
        self.run_job = RunJob(self.book, handlers, clock, self.meter)
        self.find_instance = FindInstance(self.instances)
        self.reader = ReadInstance(
            self.find_instance, self.instances, self.hub, clock, self.observer.is_stale
        )
        self.comprehensive = ListComprehensive(
            self.instances, self.cloud, self.observer, self.installation, clock
        )
        self.sync_cloud = SyncCloud(self.observer, self.comprehensive.forget)
        caches = (*self.reader.caches, *self.comprehensive.caches, *self.catalogue.caches)
        self.manage_caches = ManageCaches(caches, self.instances)
        self.sweep = Sweep(self.book, self.job_factory, clock)
        self.launch_instance = LaunchInstance(
            self.instances,
            self.catalogue,
            self.event_recorder,
            self.job_factory,
            RULES,
            clock,
            self.ids,
            max_wait,
        )
        self.change_goal = ChangeGoal(
            self.instances,
            self.book,
            self.find_instance,
            self.event_recorder,
            self.job_factory,
            clock,
            self.ids,
            max_wait,
            lambda: self.breaker_state,
        )
        self.orphan_services = self._orphan_services(max_wait)
        self.collector = self.orphan_services.collect
        self._look_at = self._sweep_at = self._collect_at = clock.now()
        self._recover()

    def _open(self, path: Path) -> None:
        """Open the store; a herd on another store overrides this."""
        clock, changed = self.clock, self.hub.changed
        self.database = self.new_database(path)
        self.flags = SqlFlags(self.database)
        self.instances = MeteredInstances(self.database, clock, changed, self.meter)
        self.observations = SqlObservations(self.database, changed)
        sql_turns = SqlInstanceLeases(self.database, clock, self.ids, changed)
        sql_turns.release_all_leases()
        self.turns = MeteredLeases(sql_turns, self.instances, self.meter)
        self.book = SqlJobs(self.database, clock)
        self.outbox = SqlOutbox(self.database)
        self.endpoints = SqlWebhookEndpoints(self.database)
        self.orphans = SqlOrphans(self.database, clock, changed)

    def _orphan_services(self, max_wait: timedelta) -> OrphanServices:
        orphans, cloud, clock, installation = self.orphans, self.cloud, self.clock, self.installation
        orphan_events = OrphanEvents(self.event_recorder, clock)
        update_ledger = UpdateOrphanLedger(
            orphans, cloud, self.catalogue, orphan_events, clock, self.settling, installation
        )
        execute_order = ExecuteOrphanOrder(orphans, cloud, clock)
        find = FindOrphan(orphans, cloud, clock, installation)
        collect = CollectOrphans(
            orphans,
            update_ledger,
            execute_order,
            self.flags,
            clock,
            self.settling,
            lambda: self.observer.latest,
            lambda: self.breaker_state,
        )
        adopt = AdoptOrphan(
            orphans,
            self.instances,
            self.book,
            find,
            cloud,
            self.catalogue,
            self.event_recorder,
            self.job_factory,
            clock,
            self.ids,
            max_wait,
            installation,
        )
        return OrphanServices(orphans, collect, find, OrderOrphan(orphans, find, execute_order, clock), adopt)

    async def launch(self, name: str = "job", **wish: Any) -> Instance:
        """Accept a wish as the API would."""
        request = {
            key: wish.pop(key)
            for key in ("region", "regions", "webhook_url", "on_failure", "health_check")
            if key in wish
        }
        wanted = replace(self.wish, **wish)
        return (await self.launch_instance(LaunchRequest(name=name, wish=wanted, **request))).instance

    async def settle(self, instance: Instance, limit: timedelta = timedelta(hours=1)) -> Instance:
        """Run until the instance is settled and all its webhooks are out, or `limit` has passed."""
        end = self.clock.now() + limit
        while self.clock.now() < end:
            await self.run_for(self._look_every)
            current = await self.instances.get(instance.id)
            if current.settled and not self._due(self.clock.now()):
                return current
        raise AssertionError(f"not settled after {limit}: {await self.instances.get(instance.id)}")

    async def run_for(self, span: timedelta) -> None:
        """Do all that falls due while `span` passes."""
        end = self.clock.now() + span
        while True:
            if self.clock.now() >= self._look_at:
                self._look_at = self.clock.now() + self._look_every
                await self.observer.tick()
            if self.clock.now() >= self._collect_at:
                self._collect_at = self.clock.now() + COLLECT
                await self.collector.tick()
            if self.clock.now() >= self._sweep_at:
                self._sweep_at = self.clock.now() + SWEEP
                await self.sweep()
            while due := self._due(self.clock.now()):
                await self._run(due[0])
            following = [
                it
                for it in (self._look_at, self._collect_at, self._sweep_at, self._next_due())
                if it is not None
            ]
            pause = min(*following, end) - self.clock.now()
            if self.clock.now() >= end:
                return
            await self.clock.sleep(max(pause.total_seconds(), 0.001))

    async def run_jobs_for(self, span: timedelta) -> None:
        """Let `span` pass with nothing but due jobs in it: for days in which the cloud does not matter."""
        end = self.clock.now() + span
        while True:
            while due := self._due(self.clock.now()):
                await self._run(due[0])
            following = self._next_due()
            if following is None or following >= end:
                await self.clock.sleep((end - self.clock.now()).total_seconds())
                return
            await self.clock.sleep(max((following - self.clock.now()).total_seconds(), 0.001))

    async def _run(self, row: sa.Row[Any]) -> None:
        outcome = await self.run_job(row.payload.decode())
        now = self.clock.now()

        def put_back(connection: sa.Connection) -> None:
            if isinstance(outcome, Done):
                connection.execute(sa.delete(queue).where(queue.c.id == row.id))
                return
            woken = connection.execute(sa.select(job.c.woken).where(job.c.queue_id == row.id)).scalar()
            after = now if woken else now + outcome.delay
            connection.execute(sa.update(queue).where(queue.c.id == row.id).values(execute_after=after))

        self.database.write_now(put_back)

    def _due(self, now: datetime) -> list[sa.Row[Any]]:
        return self.database._read(lambda c: list(c.execute(DUE, {"now": now})))

    def _next_due(self) -> datetime | None:
        found = self.database._read(lambda c: c.execute(NEXT_DUE).scalar())
        return found if found is None or isinstance(found, datetime) else None

    def _recover(self) -> None:
        self.database.write_now(lambda c: c.execute(sa.update(queue).values(status="queued")).rowcount)

    def webhooks(self) -> list[str]:
        """Return the types of the webhooks that were accepted, in order."""
        return [json.loads(body)["type"] for _, body in self.receiver.got]

    def rows(self, table: sa.Table) -> list[sa.Row[Any]]:
        return self.database._read(lambda c: list(c.execute(sa.select(table))))

    def close(self) -> None:
        self.database.close()
