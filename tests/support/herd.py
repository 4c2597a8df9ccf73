"""A whole gpuherd in one thread, on a simulated cloud and a clock that jumps: minutes pass in microseconds.

The same use cases, the same SQL store on a real SQLite file; only the engine is replaced by a loop that runs
whatever is due, in the engine's order.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from copy import copy
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.prometheus_meter import MeteredLeases, PrometheusMeter
from gpuherd.adapters.prometheus_page import MetricSources, PrometheusPage
from gpuherd.adapters.sealer import AesGcmSealer
from gpuherd.adapters.sql import rental_tables
from gpuherd.adapters.stores.access_store import (
    SqlApiKeys,
    SqlIdempotencyStore,
    SqlNamedSecrets,
    SqlRevokedSessions,
)
from gpuherd.adapters.stores.audit_store import SqlAuditLog
from gpuherd.adapters.stores.budget_store import SqlBudgets
from gpuherd.adapters.stores.capacity_store import SqlCapacityMemory, SqlHeldPlans
from gpuherd.adapters.stores.event_store import SqlEventLog
from gpuherd.adapters.stores.installation_store import SqlFlags
from gpuherd.adapters.stores.instance_locks import SqlInstanceLeases
from gpuherd.adapters.stores.instance_store import SqlInstances
from gpuherd.adapters.stores.job_store import SqlJobs
from gpuherd.adapters.stores.ledger_store import SqlCosts
from gpuherd.adapters.stores.observation_store import SqlObservations
from gpuherd.adapters.stores.orphan_store import SqlOrphans
from gpuherd.adapters.stores.webhook_store import SqlDeliveryLog, SqlOutbox, SqlWebhookEndpoints
from gpuherd.bootstrap.build_services import Parts, assemble
from gpuherd.bootstrap.open_stores import on_saved
from gpuherd.bootstrap.service_parts import Outside
from gpuherd.domain.api_key import Limits
from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.domain.cloud.orphan import Orphan
from gpuherd.domain.instance.health import EndpointHealth, HealthCategory, HealthCheck
from gpuherd.domain.instance.idleness import AppAnswer
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.launch_spec import LaunchSpec
from gpuherd.domain.instance.plan import Plan
from gpuherd.domain.job import Job, JobStatus, Priority
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_endpoint import EndpointWithSecret, KeyRing, WebhookEndpoint
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.cloud_port import Cloud
from gpuherd.ports.egress_port import EgressFailure
from gpuherd.ports.instance_port import LeasedInstance
from gpuherd.ports.telemetry_port import Meter, MetricsPage, NullMeter, NullTracer, Tracer
from gpuherd.ports.webhook_port import DeliveryResult, Notifier, WebhookSender
from gpuherd.resilience.rate_limiter import RateLimiter
from gpuherd.simulator.world import World
from gpuherd.usecases.access.manage_keys import ApiKeyCache, IssuedKey
from gpuherd.usecases.access.manage_secrets import (
    Environments,
    put_secret,
    read_secret,
    read_secrets,
    remove_secret,
    rotate_secrets,
)
from gpuherd.usecases.cloud.collect_orphans import (
    collect_orphans,
    execute_order,
    prune_orphans,
    resume_collector,
)
from gpuherd.usecases.cloud.guard_creates import creates_blocked, resume_creates
from gpuherd.usecases.cloud.handle_orphan import adopt_orphan, delete_orphan, stop_orphan
from gpuherd.usecases.cloud.observe_cloud import sync_cloud
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache
from gpuherd.usecases.events.change_hub import ChangeHub
from gpuherd.usecases.events.manage_webhooks import (
    create_endpoint,
    delete_endpoint,
    is_secret_known,
    reenable_endpoint,
    replay_delivery,
    replay_since,
    rotate_endpoint,
    rotate_key_secret,
    send_test_to_endpoint,
    send_test_to_url,
    show_key_secret,
)
from gpuherd.usecases.instances.change_goal import (
    StartOptions,
    delete_instance,
    restart_instance,
    start_instance,
    stop_instance,
)
from gpuherd.usecases.instances.change_lease import note_use, remove_lease, set_lease
from gpuherd.usecases.instances.check_launch import RegionRules
from gpuherd.usecases.instances.explain_instance import explain_instance
from gpuherd.usecases.instances.goal_request import AcceptedGoal, GoalRequest
from gpuherd.usecases.instances.launch_instance import LaunchRequest, launch_instance
from gpuherd.usecases.instances.list_comprehensive import list_comprehensive
from gpuherd.usecases.instances.plan_launch import plan_launch
from gpuherd.usecases.instances.read_instance import (
    find_delivery,
    find_instance,
    find_named,
    list_instances,
    read_instance,
    wait_for_instance,
)
from gpuherd.usecases.instances.replace_instance import replace_instance
from gpuherd.usecases.money.compare_bill import compare_day, reconcile_day, reconcile_yesterday, watch_balance
from gpuherd.usecases.money.judge_budgets import judge_budgets
from gpuherd.usecases.money.manage_budgets import add_budget, change_budget
from gpuherd.usecases.money.meter_costs import meter_volumes, meter_volumes_now
from gpuherd.usecases.money.report_costs import list_leftovers, read_balance, report_costs
from gpuherd.usecases.reconcile.reconcile_context import InstancePass
from gpuherd.usecases.reconcile.reconcile_instance import reconcile_instance
from gpuherd.usecases.reconcile.rent_machine import UNKNOWN_OUTCOMES_MAX, rent_machine
from gpuherd.usecases.reconcile.verify_machine import ownership_before_removal, ownership_before_stop
from gpuherd.usecases.reconcile.watch_idleness import watch_idleness
from gpuherd.usecases.service.leader_election import StoreHistory
from gpuherd.usecases.service.read_service_health import read_service_health
from gpuherd.usecases.service.run_jobs import sweep_jobs
from gpuherd.usecases.services import Rules, Stores
from tests.support.absent import Absent
from tests.support.fake_clock import FakeClock
from tests.support.keys import make_key
from tests.support.simulated_cloud import SimulatedAccount, SimulatedCloud, SimulatedMetrics
from tests.support.sql.herd_queue import HerdQueue, QueuedJob
from tests.support.sql.inline_database import InlineDatabase
from tests.support.sql.memory_database import MemoryDatabase

PRODUCT = "RTX 4090 24GB"
TEMPLATE = "101"
OBSERVE = timedelta(seconds=2)
SWEEP = timedelta(seconds=5)
# A sweep that can find nothing is left out for so long.
LEAP = timedelta(seconds=30)
COLLECT = timedelta(seconds=10)
ADMIN_KEY = Secret("ghk_a_key_that_only_tests_know")
SECRETS_KEY = Secret("ghs_a_key_that_seals_what_tests_ask_for")
ROOT_KEY = Secret("root-key-of-the-herd-that-no-database-holds")
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


TAKEN = DeliveryResult(True, 200, "ok", "", None, 0.0)


@dataclass
class FakeNotifier:
    """Stands for Slack, Discord, ntfy and the mail server."""

    sends_mail: bool = True
    answer: DeliveryResult = field(default=TAKEN)
    told: list[tuple[WebhookEndpoint, str, bytes]] = field(default_factory=list)
    # Another one that takes its place.
    instead: Notifier | None = None

    async def notify(
        self, endpoint: WebhookEndpoint, event_id: str, body: bytes, now: datetime
    ) -> DeliveryResult:
        self.told.append((endpoint, event_id, body))
        if self.instead is not None:
            return await self.instead.notify(endpoint, event_id, body, now)
        return self.answer


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


class FakeLogs:
    """Stands for the addresses at which the cloud streams logs: they say this, and end, or say no more."""

    status = 200
    headers: Mapping[str, str] = MappingProxyType({"content-type": "text/plain"})

    def __init__(self) -> None:
        self.said = [b"the program is up\n", b"step 1\n"]
        self.ends = True
        self.failure: EgressFailure | None = None
        self.asked: list[str] = []
        self.open = 0
        self.news = asyncio.Event()

    def say(self, *chunks: bytes) -> None:
        """Go on."""
        self.said.extend(chunks)
        self.news.set()

    @asynccontextmanager
    async def stream(self, url: str, *, headers: Mapping[str, str], timeout_s: float) -> AsyncIterator[Any]:
        assert not headers, "the log is nobody's business but the cloud's: nothing of ours is sent there"
        self.asked.append(url)
        if self.failure is not None:
            raise self.failure
        self.open += 1
        try:
            yield FakeLog(self)
        finally:
            self.open -= 1


class FakeLog:
    """One of them, being read."""

    def __init__(self, logs: FakeLogs) -> None:
        self.status, self.headers = logs.status, logs.headers
        self._logs = logs
        self._read = 0

    async def read(self) -> bytes:
        while self._read == len(self._logs.said):
            if self._logs.failure is not None:
                raise self._logs.failure
            if self._logs.ends:
                return b""
            self._logs.news.clear()
            await self._logs.news.wait()
        self._read += 1
        return self._logs.said[self._read - 1]


class FakeApplications:
    """Stands for what applications say about their use: nothing, unless a test says otherwise."""

    def __init__(self) -> None:
        self.answer = AppAnswer()
        self.asked: list[tuple[int, str]] = []

    async def ask(self, port: PortMapping, path: str) -> AppAnswer:
        self.asked.append((port.port, path))
        return self.answer


def _metrics_page(meter: Meter) -> Callable[[MetricSources], MetricsPage]:
    """Return what makes the page of this meter; one that counts nothing has none."""
    if isinstance(meter, PrometheusMeter):
        return partial(PrometheusPage, meter.registry)
    return lambda _: Absent("metrics page")


class Herd:
    """The parts that `bootstrap.assemble` puts together for the service, with fakes at the ports."""

    tables = SimpleNamespace(metadata=rental_tables.metadata, **rental_tables.metadata.tables)
    wish = LaunchSpec(product_name=PRODUCT, template_id=TEMPLATE)
    breaker_state = "CLOSED"
    new_database: Callable[[Path], MemoryDatabase | InlineDatabase] = MemoryDatabase
    database: MemoryDatabase | InlineDatabase

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
        tracer: Tracer | None = None,
        unknown_outcomes_max: int = UNKNOWN_OUTCOMES_MAX,
        look_every: timedelta = OBSERVE,
    ):
        self._look_every = look_every
        self.world, self.clock = world, clock
        self.rng = random.Random(seed)
        # Apart, so that what is drawn for a tag does not change every id that follows.
        self.ids = Ids(clock, self.rng, random.Random(f"nonces {seed}"))
        self.cloud: Cloud = cloud or SimulatedCloud(world)
        self.billing = SimulatedAccount(world)
        self.use_metrics = SimulatedMetrics(world)
        self.applications = FakeApplications()
        self.logs = FakeLogs()
        self.receiver = Receiver()
        self.notifier = FakeNotifier()
        self.prober = FakeProber(clock)
        self.meter = meter or NullMeter()
        self.tracer = tracer or NullTracer()
        self.hub = ChangeHub(clock)
        self.history = StoreHistory(clock)
        self.history.subscribe(self.hub.everything_changed)
        self.keys = KeyRing([ROOT_KEY])
        self.sealer = AesGcmSealer([SECRETS_KEY])
        self.stores = self._open(path)
        self.ports = Outside(
            stores=self.stores,
            cloud=self.cloud,
            sealer=self.sealer,
            billing=self.billing,
            volumes=self.billing,
            credentials=self.billing,
            prewarms=self.billing,
            use_metrics=self.use_metrics,
            activity_probe=self.applications,
            webhook_sender=self.receiver,
            notifier=self.notifier,
            prober=self.prober,
            log_egress=self.logs,
            clock=clock,
            rng=self.rng,
            ids=self.ids,
            meter=self.meter,
            tracer=self.tracer,
            breaker_state=lambda: self.breaker_state,
            metrics_page=_metrics_page(self.meter),
            is_ready=lambda: True,
            limiters={"novita": RateLimiter(clock, 300), "watch": RateLimiter(clock, 60)},
        )
        self.values = Rules(
            boot_id="boot",
            admin_key=ADMIN_KEY,
            webhook_keys=self.keys,
            regions=RULES,
            settling=settling or SettlingPolicy(),
            poll_interval=timedelta(seconds=30),
            instance_max_wait=max_wait,
            unknown_outcomes_max=unknown_outcomes_max,
            session_stretching_rounds=1,
            # The simulated cloud answers at once: only a busy computer could make it late.
            lookup_budget_s=30.0,
        )
        self._hold(assemble(self.ports, self.values))
        self._look_at = self._sweep_at = self._collect_at = self._leap_until = clock.now()
        # Commits of lists, and how many others the last sweep has seen.
        self._quiet_commits, self._swept_changes = 0, -1
        self._swept_boot_at = self._boot_at()
        self.queue = self._open_queue()
        self.queue.recover()

    def _hold(self, parts: Parts) -> None:
        """Name what tests do and see. Only this method knows how use cases are built."""
        plane, stores, services = parts.plane, self.stores, parts.services
        self.plane, self.services = plane, services
        self.gate, self.catalogue, self.observer = (
            services.host_gate,
            services.catalogue,
            services.observer,
        )
        self.reconcile = partial(reconcile_instance, services)
        self.run_job, self.sweep = parts.run_job, partial(sweep_jobs, services)
        self.watch_clock = services.clock_adjustments.watch
        self.watch_use = partial(watch_idleness, services)
        self.capacity_line, self.watch_capacity = services.capacity_line, services.watch_capacity
        self.installation, self.flags, self.instances = stores.installation, stores.flags, stores.instances
        self.observations, self.instance_leases = stores.observations, stores.instance_leases
        self.book, self.outbox = stores.jobs, stores.outbox
        self.endpoints, self.orphans = stores.endpoints, stores.orphans
        self._name_reads(parts)
        self._name_orders(parts)
        self._name_rounds(parts)

    def _name_reads(self, parts: Parts) -> None:
        plane, services, instances = parts.plane, parts.services, self.instances
        self.get, self.events = instances.get, instances.events
        self.attempts, self.operation = instances.attempts, instances.operation
        self.find, self.find_named = partial(find_instance, services), partial(find_named, services)
        self.page, self.details = partial(list_instances, services), partial(read_instance, services)
        self.wait_for, self.why = partial(wait_for_instance, services), partial(explain_instance, services)
        self.health, self.find_delivery = (
            partial(read_service_health, plane.services),
            partial(find_delivery, services),
        )
        self.comprehensive = partial(list_comprehensive, services)
        self.forget_comprehensive = services.comprehensive_cache.forget
        self.offers, self.forget_offers = (
            parts.services.catalogue.offers,
            parts.services.catalogue.invalidate_offers,
        )
        self.regions, self.run_spec = parts.services.catalogue.regions, parts.services.catalogue.run_spec
        self.find_template = plane.catalogue.find_template
        self.costs, self.leftovers, self.balance = (
            partial(report_costs, plane.services),
            partial(list_leftovers, plane.services),
            partial(read_balance, plane.services),
        )
        self.account = plane.account

    def _name_orders(self, parts: Parts) -> None:
        plane, services = parts.plane, parts.services
        self.launch_request = partial(launch_instance, services)
        self.extend, self.remove_lease = partial(set_lease, services), partial(remove_lease, services)
        self.heartbeat, self.adopt = partial(note_use, services), partial(adopt_orphan, services)
        self.execute_order = partial(execute_order, services, services.stores.orphans)
        self.add_budget, self.change_budget = (
            partial(add_budget, plane.services),
            partial(change_budget, plane.services),
        )
        self.resume_creates, self.creates_blocked = (
            partial(resume_creates, services),
            partial(creates_blocked, services),
        )
        self.confirm_vanished, self.confirm_account = plane.vanishing.confirm, plane.account.confirm
        services = plane.services
        self.put_secret, self.get_secret = (
            partial(put_secret, plane.services),
            partial(read_secret, plane.services),
        )
        self.remove_secret, self.list_secrets = (
            partial(remove_secret, plane.services),
            partial(read_secrets, plane.services),
        )
        self.rotate_secrets = partial(rotate_secrets, plane.services)
        endpoints, cache = services.stores.endpoints, services.endpoint_cache
        self.add_endpoint, self.get_endpoint = partial(create_endpoint, services), endpoints.get
        self.enable_endpoint = partial(reenable_endpoint, services)
        self.remove_endpoint = partial(delete_endpoint, services)
        self.list_endpoints = endpoints.list_all
        self.knows_endpoint_secret = partial(is_secret_known, services)
        self.disable_endpoint, self.refresh_endpoints = cache.disable, cache.refresh
        self.replay = partial(replay_delivery, services)
        self.replay_since = partial(replay_since, services)
        self.send_test = partial(send_test_to_url, services)
        self.send_endpoint_test = partial(send_test_to_endpoint, services)
        self.show_webhook_secret = partial(show_key_secret, services)
        self.rotate_webhook_secret = partial(rotate_key_secret, services)
        self.change = parts.services.event_recorder.change
        self.account_outbox_entries = parts.services.event_recorder.account_outbox_entries
        self.delivery_job, self.reconcile_job = (
            parts.services.job_factory.delivery_job,
            parts.services.job_factory.reconcile_job,
        )
        self.ownership_before_stop = partial(ownership_before_stop, parts.services)
        self.ownership_before_removal = partial(ownership_before_removal, parts.services)
        self._parts = parts

    def _name_rounds(self, parts: Parts) -> None:
        """Name what the service does by itself, now and then."""
        plane, services, observer = parts.plane, parts.services, parts.services.observer
        self.look, self.observe, self.sync = observer.look, observer.tick, observer.sync
        self.is_stale, self.has_listed = observer.is_stale, observer.has_listed
        self.recent_listing, self.sync_cloud = observer.recent_listing, partial(sync_cloud, services)
        self.collect = partial(collect_orphans, services)
        self.resume_collector, self.forget_orphans = (
            partial(resume_collector, services),
            partial(prune_orphans, services),
        )
        self.watch_balance, self.review_budgets = (
            partial(watch_balance, parts.services),
            partial(judge_budgets, parts.services),
        )
        self.meter_volumes, self.meter_volumes_now = (
            partial(meter_volumes, parts.services),
            partial(meter_volumes_now, parts.services),
        )
        self.refresh_keys = plane.services.key_cache.refresh
        self.reconcile_bill, self.compare_bill = (
            partial(reconcile_day, plane.services),
            partial(compare_day, plane.services),
        )
        self.reconcile_yesterday = partial(reconcile_yesterday, plane.services)

    async def plan(
        self, request: LaunchRequest, *, timeout_s: float = 30.0, catalogue: CatalogueCache | None = None
    ) -> Plan:
        """Plan a launch, with another catalogue if there is one."""
        rules = replace(self.services.rules, request_timeout_s=timeout_s)
        browsed = catalogue or self.services.catalogue
        return await plan_launch(replace(self.services, rules=rules, browsed_catalogue=browsed), request)

    async def order(self, what: str, cloud_id: str, **options: Any) -> Orphan:
        """Stop or delete a machine that no instance has."""
        act = {"stop": stop_orphan, "delete": delete_orphan}[what]
        return await act(self.services, cloud_id, **options)

    async def make_key(self, scope: str = "write", **limits: Any) -> IssuedKey:
        """Make a key as an admin would."""
        return await make_key(self.plane, scope, **limits)

    async def rotate_endpoint(self, endpoint_id: str, **rules: Any) -> EndpointWithSecret:
        """Rotate the secret of an endpoint; `rules` take the place of the herd's own."""
        services = replace(self.services, rules=replace(self.services.rules, **rules))
        return await rotate_endpoint(services, endpoint_id)

    def rewire(self, **changes: Any) -> None:
        """Assemble the service anew, with other ports or settings."""
        own = {it.name for it in fields(Outside)}
        self.ports = replace(self.ports, **{key: it for key, it in changes.items() if key in own})
        self.values = replace(self.values, **{key: it for key, it in changes.items() if key not in own})
        self._hold(assemble(self.ports, self.values))

    def goals_through(self, instances: Any) -> Herd:
        """Return the same herd, whose goals are changed through another port of instances."""
        other = copy(self)
        stores = replace(self.services.stores, instances=instances)
        other.services = replace(self.services, stores=stores)
        return other

    async def start(self, id_or_name: str, *, capacity_wait_s: int = 0, **asked: Any) -> AcceptedGoal:
        known = {name: asked.pop(name) for name in ("health_check", "webhook_url") if name in asked}
        options = StartOptions(capacity_wait_s=capacity_wait_s, **known)
        return await start_instance(self.services, GoalRequest(id_or_name, **asked), options)

    async def restart(self, id_or_name: str, **asked: Any) -> AcceptedGoal:
        return await restart_instance(self.services, GoalRequest(id_or_name, **asked))

    async def stop(self, id_or_name: str, **asked: Any) -> AcceptedGoal:
        return await stop_instance(self.services, GoalRequest(id_or_name, **asked))

    async def delete(self, id_or_name: str, **asked: Any) -> AcceptedGoal:
        return await delete_instance(self.services, GoalRequest(id_or_name, **asked))

    async def replace(self, id_or_name: str, **asked: Any) -> AcceptedGoal:
        return await replace_instance(self.services, GoalRequest(id_or_name, **asked))

    async def rent(self, leased: LeasedInstance) -> None:
        """Rent in a pass that has read this."""
        instance, now = leased.instance, self.clock.now()
        job = Job("job", "create_instance", JobStatus.PROCESSING, Priority.NORMAL, 0, 3, now, instance.id)
        await rent_machine(InstancePass(self._parts.services, job, leased))

    def rent_without_nonce(self) -> None:
        """Make tags as if a replica of another version were alive."""
        other = SimpleNamespace(version="another")
        object.__setattr__(self._parts.services, "live_replicas", lambda: (other,))

    def rent_with_key(self, key: Secret) -> None:
        """Let the process that rents have another key than the one that sealed the variables."""
        environments = Environments(AesGcmSealer([key]), self.stores.secrets)
        object.__setattr__(self._parts.services, "environments", environments)

    def save_through(self, leases: Any) -> None:
        """Let passes be written down through another port."""
        object.__setattr__(self._parts.services.stores, "instance_leases", leases)

    async def audit_page(self, *question: Any, **filters: Any) -> Any:
        """Return a page of the audit log. The memory store of the chaos proof has none."""
        return await self.stores.audit.page(*question, **filters)

    def limit_heirs(self, limits: Limits | None) -> None:
        """Let replacements be judged by these limits, or by those of their keys again."""
        cache = self._parts.services.key_cache
        limits_of = partial(ApiKeyCache.limits_of, cache) if limits is None else lambda _: limits
        object.__setattr__(cache, "limits_of", limits_of)

    def tell_endpoints(self, *endpoints: WebhookEndpoint) -> None:
        """Let events go to these endpoints only."""
        self._parts.services.event_recorder._endpoints = lambda: endpoints

    def lose_webhook_root_key(self, keys: KeyRing) -> None:
        """Let webhooks be signed with other root keys than those that the secrets were made with."""
        self._parts.services.endpoint_cache._keys = keys

    def forget_heartbeats(self) -> None:
        """Be as a process that has just started: what was said before was not heard."""
        self._parts.services.use_clock.up_since = self.clock.now()

    @property
    def auto_delete(self) -> bool:
        return self.services.rules.auto_delete

    @auto_delete.setter
    def auto_delete(self, value: bool) -> None:
        object.__setattr__(self.services.rules, "auto_delete", value)

    def _open(self, path: Path) -> Stores:
        """Open the store; a herd on another store overrides this."""
        clock, changed = self.clock, self.hub.changed
        self.database = database = self.new_database(path)
        flags = SqlFlags(database)
        instances = SqlInstances(database, clock, changed, on_saved(self.meter, self.tracer))
        sql_leases = SqlInstanceLeases(database, clock, self.ids, changed)
        sql_leases.release_all_leases()
        orphans = SqlOrphans(database, clock, changed)
        events = SqlEventLog(database, clock, changed)
        return Stores(
            installation=self._installation(flags),
            hub=self.hub,
            history=self.history,
            flags=flags,
            instances=instances,
            events=events,
            account_events=events,
            observations=SqlObservations(database, changed),
            instance_leases=MeteredLeases(sql_leases, self.meter),
            jobs=SqlJobs(database, clock),
            outbox=SqlOutbox(database, clock),
            deliveries=SqlDeliveryLog(database, clock),
            endpoints=SqlWebhookEndpoints(database),
            orphans=orphans,
            collector_orphans=orphans,
            keys=SqlApiKeys(database),
            audit=SqlAuditLog(database),
            claims=SqlIdempotencyStore(database, clock),
            ended_sessions=SqlRevokedSessions(database, changed),
            secrets=SqlNamedSecrets(database),
            held_plans=SqlHeldPlans(database),
            costs=SqlCosts(database),
            capacity=SqlCapacityMemory(database),
            budgets=SqlBudgets(database, clock, changed),
            reviewed_budgets=SqlBudgets(database, clock, changed),
            metered_costs=SqlCosts(database),
        )

    def _open_queue(self) -> HerdQueue:
        return HerdQueue(self.database, self.clock)

    def _installation(self, flags: Any) -> str:
        return flags.ensure("installation", f"{self.rng.getrandbits(32):08x}")

    async def launch(self, name: str = "job", **wish: Any) -> Instance:
        """Accept a wish as the API would."""
        request = {
            key: wish.pop(key)
            for key in (
                *("region", "regions", "webhook_url", "on_failure", "health_check", "terms"),
                *("labels", "caller", "on_reclaim", "max_replacements", "handover_s", "envs"),
            )
            if key in wish
        }
        wanted = replace(self.wish, **wish)
        return (await self.launch_request(LaunchRequest(name=name, wish=wanted, **request))).instance

    async def settle(self, instance: Instance, limit: timedelta = timedelta(hours=1)) -> Instance:
        """Run until the instance is settled and all its webhooks are out, or `limit` has passed."""
        end = self.clock.now() + limit
        while self.clock.now() < end:
            await self.run_for(self._look_every)
            current = await self.get(instance.id)
            if current.settled and self.queue.due() is None:
                return current
        raise AssertionError(f"not settled after {limit}: {await self.get(instance.id)}")

    async def run_for(self, span: timedelta) -> None:
        """Do all that falls due while `span` passes."""
        end = self.clock.now() + span
        while True:
            seen_commits = self.database.commits
            if self.clock.now() >= self._look_at:
                self._look_at = self.clock.now() + self._look_every
                await self.observe()
            # A list that shows what is known already is written down, and changes nothing.
            self._quiet_commits += self.database.commits - seen_commits
            if self.clock.now() >= self._collect_at:
                self._collect_at = self.clock.now() + COLLECT
                await self.collect()
            if self.clock.now() >= self._sweep_at:
                self._sweep_at = self.clock.now() + SWEEP
                if self._may_find_something():
                    await self._sweep_once()
                else:
                    # The cloud's stock changes without a commit.
                    await self.watch_capacity()
            await self._run_due()
            following = [
                it
                for it in (self._look_at, self._collect_at, self._sweep_at, self.queue.next_due())
                if it is not None
            ]
            pause = min(*following, end) - self.clock.now()
            if self.clock.now() >= end:
                return
            await self.clock.sleep(max(pause.total_seconds(), 0.001))

    def _may_find_something(self) -> bool:
        """Return True if the store or the clock was set since the last sweep, or if one is due."""
        changes = self.database.commits - self._quiet_commits
        was_set = abs(self._boot_at() - self._swept_boot_at) > timedelta(seconds=0.5)
        return was_set or changes != self._swept_changes or self.clock.now() >= self._leap_until

    def _boot_at(self) -> datetime:
        return self.clock.now() - timedelta(seconds=self.clock.monotonic())

    async def _sweep_once(self) -> None:
        changes = self.database.commits - self._quiet_commits
        await self.watch_clock()
        await self.sweep()
        await self.watch_use()
        await self.review_budgets()
        await self.watch_capacity()
        self._swept_changes = changes
        self._swept_boot_at = self._boot_at()
        end = self.queue.next_end()
        self._leap_until = min(end or self.clock.now() + LEAP, self.clock.now() + LEAP)

    async def run_and_advance(self, span: timedelta) -> None:
        """Do all that falls due while `span` passes, on a clock that stands still by itself."""
        working = asyncio.create_task(self.run_for(span))
        await self.clock.advance(span.total_seconds())
        await working

    async def run_jobs_for(self, span: timedelta) -> None:
        """Let `span` pass with nothing but due jobs in it: for days in which the cloud does not matter."""
        end = self.clock.now() + span
        while True:
            await self._run_due()
            following = self.queue.next_due()
            if following is None or following >= end:
                await self.clock.sleep((end - self.clock.now()).total_seconds())
                return
            await self.clock.sleep(max((following - self.clock.now()).total_seconds(), 0.001))

    async def _run_due(self) -> None:
        while it := self.queue.pick():
            await self.run_queued(it)

    async def run_queued(self, it: QueuedJob) -> None:
        """Run a job that was picked, and put it back or forget it."""
        await self.queue.finish(it, await self.run_job(it.job_id))

    def webhooks(self) -> list[str]:
        """Return the types of the webhooks that were accepted, in order."""
        return [json.loads(body)["type"] for _, body in self.receiver.got]

    def stored_bytes(self) -> bytes:
        """Return all that is stored, as it would lie on a disk."""
        assert isinstance(self.database, MemoryDatabase)
        return self.database.raw.serialize()

    def restore_bytes(self, stored: bytes) -> None:
        """Lose everything since then, under a process that goes on."""
        assert isinstance(self.database, MemoryDatabase)
        with closing(sqlite3.connect(":memory:")) as then:
            then.deserialize(stored)
            then.backup(self.database.raw)

    def rows(self, table: sa.Table) -> list[sa.Row[Any]]:
        return self.database._read(lambda c: list(c.execute(sa.select(table))))

    def close(self) -> None:
        self.database.close()


class FileHerd(Herd):
    """A herd on a SQLite file, for stories about the file."""

    new_database = InlineDatabase
