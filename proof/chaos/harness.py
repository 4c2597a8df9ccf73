"""The harness of one schedule.

A cloud, a disk, a receiver, and a process that is restarted when it crashes.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from random import Random
from typing import Any, TypeVar

from gpuherd.domain.cloud.account_identity import account_flag
from gpuherd.domain.cloud.machine import Listing
from gpuherd.domain.cloud.observation import ListRecord
from gpuherd.domain.cloud.orphan import OrphanVerdict
from gpuherd.domain.cloud.template import CreateCall
from gpuherd.domain.instance.idleness import Utilization
from gpuherd.domain.instance.instance import Goal, Status
from gpuherd.domain.instance.instance_event import Event
from gpuherd.domain.instance.instance_state import VANISHED, auto_ends_at, due_at
from gpuherd.domain.instance.rent_attempt import parse_tag
from gpuherd.domain.money.budget import Budget
from gpuherd.domain.webhooks.webhook_delivery import DeliveryState
from gpuherd.ports.instance_port import Change
from gpuherd.ports.webhook_port import DeliveryResult
from gpuherd.simulator.simulated_bill import disk_usd_per_hour
from gpuherd.simulator.simulated_catalogue import CloudCatalogue, default_catalogue
from gpuherd.simulator.simulated_machine import SimulatedMachine
from gpuherd.simulator.world_state import Due
from gpuherd.usecases.cloud.collect_orphans import COLLECTOR_BRAKED
from gpuherd.usecases.cloud.guard_creates import INSTALLATION_SHARED
from gpuherd.usecases.cloud.handle_orphan import OPERATOR
from gpuherd.usecases.reconcile.watch_idleness import AUTO_STOP_BRAKED
from proof.chaos.checks.evidence import Evidence, ObservedCreate, ReceivedWebhook, SeenMachine, Window
from proof.chaos.cloud.account_swap import OUR_ACCOUNT
from proof.chaos.cloud.recording_cloud import RecordingCloud
from proof.chaos.cloud.reused_ids import NEVER_REUSED, IdReuse, ReusingWorld
from proof.chaos.crash_injection import CrashInjector, CrashPolicy, ProcessKilled
from proof.chaos.ends.evidence import CloudCall, Promise, Version, WatchedTables, is_new_promise
from proof.chaos.ends.plan import NO_ENDS, EndsPlan
from proof.chaos.ends.use_metrics import RecordedMetrics, use_trace
from proof.chaos.process import Pace, Process, ProcessEnvironment
from proof.chaos.virtual_time import VirtualClock, VirtualLoop
from tests.support.herd import PRODUCT
from tests.support.memory.tables import InstanceRow
from tests.support.simulated_cloud import SimulatedCloud

T = TypeVar("T")

# Past so many deaths nothing new happens, it only takes longer.
CRASHES_MAX = 12
# The longest a schedule may take to come to rest once nothing goes wrong any more.
CALM_LIMIT_S = 6 * 3600.0


OPERATOR_S = 60.0
# What ends within this is waited for: it is announced five minutes ahead.
ENDS_SOON_S = 420.0
DECOY_PRODUCT = "RTX 3090 24GB"


def small_catalogue() -> CloudCatalogue:
    """Return a cloud with little more than what is rented here: its catalogue is asked for in every life."""
    whole = default_catalogue()
    sold = tuple(it for it in whole.products if it.name in (PRODUCT, DECOY_PRODUCT))
    wanted_cluster_ids = {cluster_id for it in sold for cluster_id in it.cluster_ids}
    clusters = tuple(it for it in whole.clusters if it.id in wanted_cluster_ids)
    return replace(whole, clusters=clusters, products=sold, cpu_products=())


class Receiver:
    """The user's webhook endpoint: up, down or slow."""

    def __init__(self, clock: VirtualClock, evidence: Evidence):
        self.mode = "up"
        self._clock = clock
        self._evidence = evidence

    async def send(
        self, url: str, event_id: str, body: bytes, now: Any, secrets: Any = None
    ) -> DeliveryResult:
        if self.mode == "slow":
            await self._clock.sleep(14.9)
        accepted = self.mode != "down"
        kept = self._evidence.tables.deliveries.get(event_id)
        committed = kept is not None and kept.body == body
        self._evidence.received_webhooks.append(
            ReceivedWebhook(self._clock.elapsed_s, event_id, body, accepted, committed)
        )
        if not accepted:
            return DeliveryResult(False, 503, "http_5xx", "answered 503", None, 0.0)
        return DeliveryResult(True, 200, "ok", "", None, 0.0)


class Harness:
    """Builds everything from one seed, and keeps the evidence."""

    crashes_max = CRASHES_MAX
    process_type = Process

    def __init__(
        self,
        seed: int,
        pace: Pace,
        crash_policy: Callable[[int], CrashPolicy],
        *,
        downtime_s: float = 20.0,
        id_reuse: IdReuse = NEVER_REUSED,
        ends: EndsPlan = NO_ENDS,
    ):
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        # One for the world and one for the service, so that a change of ours does not change the weather.
        self.world = self._make_world(seed, id_reuse)
        self.world.on_reuse = self._note_reuse
        self.evidence = Evidence(self.world, WatchedTables(), pace.settle_s, origin_s=self.world.now())
        self.receiver = Receiver(self.clock, self.evidence)
        self.pace = pace
        self.seed = seed
        self.trace: list[tuple[float, str]] = []
        # Whether the process can die, and whether all that goes wrong is over.
        self.can_crash = True
        self.calm = False
        self.process: Process | None = None
        self.incarnations = 0
        self._crash_policy = crash_policy
        self._downtime_s = downtime_s
        self._rng = Random(f"nemesis {seed}")
        self._use_rng = Random(f"uses {seed}")
        self._up = asyncio.Event()
        self._quiet = asyncio.Event()
        self._before: object = None
        self._braked_since_s: float | None = None
        # What lists have shown that are not written down yet, and when; by when they were finished.
        self._unkept_lists: dict[datetime, tuple[float, tuple[str, ...]]] = {}
        self._cloud = RecordingCloud(
            self.world,
            latency_s=pace.latency_s,
            on_post=self._note_post,
            on_listed=self._note_listed,
            on_delete=self._note_delete,
        )
        self.evidence.tables.flags[account_flag(OUR_ACCOUNT)] = "the first"
        self._environment = ProcessEnvironment(
            tables=self.evidence.tables,
            world=self.world,
            clock=self.clock,
            account=OUR_ACCOUNT,
            cloud=self._cloud,
            receiver=self.receiver,
            on_bound=self._note_bound,
            on_saved=self._note_saved,
            on_list_kept=self._note_list_kept,
            on_look=self._note_look,
        )
        # How the machine of each is used, by the name of its instance.
        self.uses: dict[str, str] = {}
        if pace.keeps_ends:
            self._watch_ends(ends)
        # Work that users still wait for.
        self.busy_users = 0

    def _make_world(self, seed: int, id_reuse: IdReuse) -> ReusingWorld:
        """Return the cloud; a play of another length has another one."""
        rng, id_rng = Random(f"world {seed}"), Random(f"ids {seed}")
        return ReusingWorld(self.clock, rng, small_catalogue(), reuse=id_reuse, id_rng=id_rng)

    def _watch_ends(self, plan: EndsPlan) -> None:
        ends, tables = self.evidence.ends, self.evidence.tables
        assert isinstance(tables, WatchedTables)
        ends.plan, tables.on_commit = plan, self._note_commit
        metrics = RecordedMetrics(
            self.world, Random(f"metrics {self.seed}"), plan.hole_probability, self._note_samples
        )
        self._environment = replace(self._environment, on_call=self._note_call, use_metrics=metrics)

    def _note_commit(self, table: str, row: object) -> None:
        ends, at_s = self.evidence.ends, self.clock.elapsed_s
        match row:
            case InstanceRow(instance=it):
                known = ends.versions[it.id]
                before = known[-1].instance.lease_term if known else None
                if it.lease_term is not None and is_new_promise(before, it.lease_term):
                    left_s = (it.lease_term.ends_at - self.clock.now()).total_seconds()
                    ends.promises[it.id].append(Promise(at_s, at_s + left_s, it.lease_term))
                known.append(Version(at_s, it))
            case Event():
                ends.event_s[row.instance_id, row.sequence] = at_s
            case Budget():
                ends.budgets[row.id].append((at_s, row))

    def _note_samples(self, cloud_id: str, found: tuple[Utilization, ...]) -> None:
        self.evidence.ends.samples[cloud_id].append((self.clock.elapsed_s, found))

    def _note_call(self, method: str, cloud_id: str, begin: float, error: BaseException | None) -> None:
        end_s = self.clock.elapsed_s
        begin_s = end_s - (self.clock.monotonic() - begin)
        if isinstance(error, (ProcessKilled, asyncio.CancelledError)) and end_s <= begin_s:
            # It did not go out.
            return
        failed = "" if error is None else type(error).__name__
        self.evidence.ends.calls.append(CloudCall(begin_s, end_s, method, cloud_id, failed))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the whole play, and leave nothing behind."""
        asyncio.set_event_loop(self.loop)
        try:
            return self.loop.run(work)
        finally:
            self.close()

    def close(self) -> None:
        """End whatever is still going on, and the loop."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run(asyncio.sleep(0))
        self.loop.run(asyncio.sleep(0))
        self.loop.close()
        asyncio.set_event_loop(None)

    def say(self, line: str) -> None:
        """Write a line of the trace."""
        self.trace.append((self.loop._time_s, line))

    def trace_hash(self) -> str:
        """Return what two runs of one seed must have in common."""
        digest = hashlib.sha256()
        for at_s, line in self.trace:
            digest.update(f"{at_s!r} {line}\n".encode())
        return digest.hexdigest()

    async def supervise(self) -> None:
        """Keep a process alive for as long as the play goes on."""
        while True:
            process = self.start_process()
            await process.died.wait()
            await self.wait_for_restart()

    def start_process(self) -> Process:
        """Start the next life of the process."""
        self.incarnations += 1
        crash_policy = self._crash_policy(self.incarnations)
        crash_injector = CrashInjector(
            lambda passed, label: (
                self.can_crash and self.incarnations <= self.crashes_max and crash_policy(passed, label)
            ),
            self.clock,
            self.say,
            self._rng,
            self.pace.delay_odds,
        )
        self.say(f"life {self.incarnations} begins")
        self.evidence.ends.lives_s.append(self.clock.elapsed_s)
        self.process = self.process_type(
            self._environment, crash_injector, self.pace, seed=self.seed * 1000 + self.incarnations
        )
        self.process.begin()
        self._up.set()
        return self.process

    async def wait_for_restart(self) -> None:
        """Bury the process, and let the supervisor's pause pass."""
        assert self.process is not None
        self._up.clear()
        process, self.process = self.process, None
        begin_s = self.clock.elapsed_s
        self.evidence.crashes += 1
        await self._terminate(process)
        await self.clock.sleep(self._downtime_s * self._rng.random() ** 2)
        self.evidence.down.append(Window(begin_s, self.clock.elapsed_s))

    def restart_with_key(self, account: str, cloud: SimulatedCloud | None = None) -> None:
        """End the process, and start it from now on with the key of this account."""
        self.say(f"the key of {account}")
        self._environment = replace(self._environment, account=account, cloud=cloud or self._cloud)
        if self.process is not None:
            self.process.crash_injector.dead = True
            self.process.died.set()

    def show_instead(self, cloud: SimulatedCloud | None) -> None:
        """Show what is on this account in the place of ours; None: ours again."""
        self.say("ours is shown" if cloud is None else "another account is shown")
        self._cloud.shown_instead = cloud

    async def _terminate(self, process: Process) -> None:
        self.evidence.coverage["breaker opened"] += process.breaker_cloud.refused > 0
        await process.terminate()

    async def ask(self, call: Callable[[Process], Awaitable[T]]) -> T:
        """Make a request as a patient user: again, until there is an answer."""
        self.busy_users += 1
        try:
            while True:
                await self._up.wait()
                process = self.process
                assert process is not None
                task = process.spawn(_calling(call, process))
                await asyncio.wait([task])
                if not task.cancelled() and not isinstance(task.exception(), ProcessKilled):
                    return task.result()
                await self.clock.sleep(1.0)
        finally:
            self.busy_users -= 1

    async def until_quiet(self, *, can_crash: bool = False) -> None:
        """Let everything go well from now on, and wait until nothing is left to do."""
        self.calm, self.can_crash = True, can_crash
        self._quiet.clear()
        self.world.faults.replace([])
        self.receiver.mode = "up"
        self.say("calm")
        operator = asyncio.ensure_future(self._operate())
        try:
            async with asyncio.timeout(CALM_LIMIT_S):
                await self._quiet.wait()
        except TimeoutError:
            self.evidence.quiet = False
        else:
            self.evidence.quiet = True
        finally:
            operator.cancel()

    async def _operate(self) -> None:
        """Do what a person does who is told that the service does not dare to go on."""
        while True:
            if INSTALLATION_SHARED in self.evidence.tables.flags:
                self.evidence.coverage["installation alarm"] += 1
                await self.ask(lambda process: process.resume_creates(OPERATOR))
            if COLLECTOR_BRAKED in self.evidence.tables.flags:
                self.evidence.coverage["collector braked"] += 1
                await self.ask(lambda process: process.resume_collector("operator"))
                if self._braked_since_s is not None:
                    self.evidence.braked.append(Window(self._braked_since_s, self.clock.elapsed_s))
                    self._braked_since_s = None
            await self.clock.sleep(OPERATOR_S)

    def finish(self) -> Evidence:
        """Close the books."""
        self.evidence.ended_s, self.evidence.ended_at = self.clock.elapsed_s, self.clock.now()
        if self.process is not None:
            self.evidence.coverage["breaker opened"] += self.process.breaker_cloud.refused > 0
        self.evidence.unhandled = [it for it in self.loop.unhandled if not isinstance(it, ProcessKilled)]
        return self.evidence

    def _note_post(self, order: CreateCall) -> None:
        tables = self.evidence.tables
        key = tables.tags.get(order.tag)
        attempt = tables.attempts.get(key) if key else None
        mine = [it for it in tables.attempts.values() if key and it.instance_id == key[0] and it.is_open]
        intended = attempt is not None and attempt.is_open
        row = tables.instances.get(key[0]) if key else None
        gpu_usd = order.offer.gpu_hourly_usd(order.billing_mode)
        self.evidence.create_calls.append(
            ObservedCreate(
                self.clock.elapsed_s,
                order.tag,
                intended,
                len(mine),
                Fraction(gpu_usd or 0) * order.gpu_num + disk_usd_per_hour(order.disk_gb),
                row.instance.wish.hourly_usd_max if row else None,
            )
        )

    def note_list_end(self, listing: Listing) -> None:
        """Note when a list was finished, whatever account it shows."""
        self.evidence.list_ends_s.setdefault(listing.finished_at, self.clock.elapsed_s)

    def _note_listed(self, listing: Listing) -> None:
        self.note_list_end(listing)
        shown = tuple(it.cloud_id for it in listing.machines)
        self._unkept_lists[listing.finished_at] = (self.clock.elapsed_s, shown)

    def _note_list_kept(self, record: ListRecord) -> None:
        """Note what a list has shown; one that dies with the process has shown nobody anything."""
        listed_s = self.evidence.listed_at_s
        at_s, shown = self._unkept_lists.pop(record.finished_at, (0.0, ()))
        for cloud_id in shown:
            listed_s.setdefault(cloud_id, at_s)

    def _note_delete(self, cloud_id: str) -> None:
        """Note a removal of a machine whose own instance wants to keep it."""
        machine = self.world.listed.get(cloud_id)
        tables = self.evidence.tables
        key = None if machine is None else tables.tags.get(str(parse_tag(machine.request.name)))
        if key is None:
            return
        attempt, owner = tables.attempts[key], tables.instances[key[0]].instance
        has_it = attempt.is_open or owner.cloud_id == cloud_id
        if has_it and owner.goal is not Goal.DELETED and owner.status is not Status.FAILED:
            self.evidence.wrong_deletes.append(
                f"the machine of {owner.id} was removed while it is {owner.status}"
            )

    def _note_reuse(self, machine: SimulatedMachine) -> None:
        evidence = self.evidence
        evidence.coverage["cloud id used again"] += 1
        bound_s, listed_s = (it.pop(machine.id, None) for it in (evidence.bound_at_s, evidence.listed_at_s))
        evidence.former.append(SeenMachine(machine, bound_s, listed_s))

    def _note_saved(self, change: Change) -> None:
        """Note what is said of a machine that it is gone, while it is there."""
        it = change.instance
        lost = any(event.details.get("code") == VANISHED for event in change.events)
        if not lost and not any(event.after == Status.DELETED.value for event in change.events):
            return
        machine = self.world.listed.get(it.cloud_id or it.last_cloud_id or "")
        if machine is None or not machine.is_alive(self.world.now()):
            return
        key = self.evidence.tables.tags.get(str(parse_tag(machine.request.name)))
        if key is not None and key[0] == it.id:
            said = "lost" if lost else "deleted"
            self.evidence.false_losses.append(f"{it.id} was called {said}, and its machine is there")

    def note_jump(self, seconds: float) -> None:
        """Note that the wall clock has jumped, and what it jumped in."""
        self.evidence.jumps.append((self.clock.elapsed_s, seconds))
        self.evidence.clock_jumps += 1
        in_doubt = any(it.is_open for it in self.evidence.tables.attempts.values())
        self.evidence.coverage["clock jumped while a create was in doubt"] += in_doubt

    def _note_bound(self, cloud_id: str) -> None:
        self.evidence.bound_at_s.setdefault(cloud_id, self.clock.elapsed_s)
        if not self.uses:
            return
        row = self.evidence.tables.instances.get(self.evidence.tables.bound.get(cloud_id, ""))
        style = "busy" if row is None else self.uses.get(row.instance.name, "busy")
        self.world.uses.traces[cloud_id] = use_trace(style, self.world.now(), self._use_rng)

    def _note_look(self) -> None:
        self.evidence.looks += 1
        if COLLECTOR_BRAKED in self.evidence.tables.flags and self._braked_since_s is None:
            self._braked_since_s = self.clock.elapsed_s
        if self.pace.keeps_ends:
            self._note_brake()
        if not self.calm:
            return
        # Twice in a row the same rest: the second look has shown that nothing came after the first.
        state = self._rest_state()
        if state is not None and state == self._before:
            self._quiet.set()
        self._before = state

    def _note_brake(self) -> None:
        if AUTO_STOP_BRAKED in self.evidence.tables.flags:
            ends = self.evidence.ends
            self.evidence.coverage["idleness braked"] += 1
            ends.braked_s = self.clock.elapsed_s if ends.braked_s is None else ends.braked_s

    def _ends_soon(self) -> bool:
        """Tell whether something is about to end by itself: that is no rest."""
        if not self.pace.keeps_ends:
            return False
        horizon = self.clock.now() + timedelta(seconds=ENDS_SOON_S)
        its = [row.instance for row in self.evidence.tables.instances.values()]
        # Whose end for idleness is held back rests as it is.
        is_held = AUTO_STOP_BRAKED in self.evidence.tables.flags
        moments = [due_at(it) if is_held else _first(due_at(it), auto_ends_at(it)) for it in its]
        return any(at is not None and at <= horizon for at in moments)

    def _rest_state(self) -> object:
        """Return what everything rests in, or None while something is still to come."""
        tables, world = self.evidence.tables, self.world
        pending = any(it.state is DeliveryState.PENDING for it in tables.deliveries.values())
        moving = any(
            not it.settled or it.look_at for it in (row.instance for row in tables.instances.values())
        )
        world.tick()
        coming = world.all_listed_at > world.now() or any(
            event.due in (Due.COMMIT, Due.RECLAIM) for event in world.timeline.events
        )
        surplus = any(it.is_open and it.verdict is OrphanVerdict.SURPLUS for it in tables.orphans.values())
        if self.busy_users or pending or moving or coming or surplus or tables.live_jobs or self._ends_soon():
            return None
        return [(row.instance.id, row.instance.version) for row in tables.instances.values()]


async def _calling(call: Callable[[Process], Awaitable[T]], process: Process) -> T:
    # Only here, so that nothing was begun if the process dies before the call could begin.
    return await call(process)


def _first(*moments: datetime | None) -> datetime | None:
    return min(filter(None, moments), default=None)
