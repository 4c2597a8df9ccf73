"""The simulated cloud: what happens to its machines and its market, by command and by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

from gpuherd.ports.clock_port import Clock
from gpuherd.simulator import fault_effects, simulated_machine
from gpuherd.simulator.faults import ApiEndpoint, Call
from gpuherd.simulator.market import (
    Weather,
    new_id,
    notice_s,
    place,
    proxy_ports,
    reclaim_after_s,
    stock_turn_s,
    walked,
)
from gpuherd.simulator.simulated_account import PREWARMED_SHARE, PrewarmRequest
from gpuherd.simulator.simulated_bill import Dated
from gpuherd.simulator.simulated_catalogue import DISK_GB_MAX, CloudCatalogue, Product
from gpuherd.simulator.simulated_machine import REMOVAL_STATUSES, SimulatedMachine, StatusChange
from gpuherd.simulator.simulated_request import (
    CreateRequest,
    ExposedPort,
    SimulatedError,
    check_ports,
    insufficient_resource,
    invalid,
    invalid_state,
    not_found,
)
from gpuherd.simulator.world_file import dump_state, restore_state
from gpuherd.simulator.world_state import Due, TimelineEvent, WorldState

PULL_JITTER = 0.3


class World(WorldState):
    """The commands of the cloud. They raise `SimulatedError` as the cloud would."""

    @classmethod
    def load(
        cls,
        data: dict[str, Any],
        clock: Clock,
        rng: Random,
        catalogue: CloudCatalogue | None = None,
        speed: float = 1.0,
    ) -> World:
        """Return a dumped world at the present time."""
        world = cls(clock, rng, catalogue, speed)
        restore_state(world, data)
        return world

    def dump(self) -> dict[str, Any]:
        """Return everything as plain JSON. It contains the simulated passwords."""
        return dump_state(self)

    def create(self, request: CreateRequest) -> str:
        """Rent a machine and return its id."""
        self.tick()
        self._check_references(request)
        self.check_balance()
        where = place(request, self.catalogue, self.free_units, self.rng)
        machine_id = self.draw_id(request)
        call = Call(ApiEndpoint.CREATE, request.name, request.product_id, where.cluster_id, machine_id)
        machine = SimulatedMachine(
            id=machine_id,
            request=request,
            name=fault_effects.kept_name(self.faults, call),
            cluster_id=where.cluster_id,
            created_at=self.now(),
            prices=[Dated(self.now(), where.price)],
            disks=[Dated(self.now(), request.disk_gb)],
            product_name=where.product_name,
            cpu_num=where.cpu_num,
            memory_gb=where.memory_gb,
            gpu_ids=sorted(self.rng.sample(range(8), request.gpu_num)),
            ssh_password=f"{self.rng.getrandbits(64):016x}",
            unlisted_until=self.now() + fault_effects.unlisted_s(self.faults, call),
        )
        self.all_listed_at = max(self.all_listed_at, machine.unlisted_until)
        self._take_units(machine, insufficient_resource(request.product_id))
        self._boot(machine, call)
        self.machines[machine_id] = self.listed[machine_id] = machine
        return machine_id

    def draw_id(self, _request: CreateRequest) -> str:
        """Return a new id for a machine."""
        return new_id(self.machines, self.rng)

    def start(self, machine_id: str) -> SimulatedMachine:
        machine = self._find_in(machine_id, "start", "exited")
        call = self.call_about(ApiEndpoint.START, machine)
        self.check_balance()
        self._take_units(machine, insufficient_resource(machine.request.product_id))
        start_s = fault_effects.slowed_s(self.faults, call, self._jittered(self.times.starting))
        running_at = simulated_machine.start(machine, self.now(), self.times, start_s)
        # A start is a new agreement, at today's price.
        reprice(self, machine)
        machine.proxy_ports = proxy_ports(machine.request, machine.proxy_ports, self.rng)
        self._plan_reclaim(machine, call, running_at)
        return machine

    def stop(self, machine_id: str) -> SimulatedMachine:
        machine = self._find_in(machine_id, "stop", "running")
        self._free_at(simulated_machine.stop(machine, self.now(), self.times), machine)
        return machine

    def restart(self, machine_id: str) -> SimulatedMachine:
        machine = self._find_in(machine_id, "restart", "running")
        simulated_machine.restart(machine, self.now(), self.times)
        machine.proxy_ports = proxy_ports(machine.request, machine.proxy_ports, self.rng)
        return machine

    def delete(self, machine_id: str) -> SimulatedMachine:
        """Remove a machine in any state. A second call succeeds until it is gone."""
        machine = self.find(machine_id)
        if machine.request.billing_mode == "monthly":
            raise SimulatedError(
                400,
                "PREPAID_INSTANCE_NOT_SUPPORT_RELEASE",
                "a subscription cannot be released before its end",
            )
        if machine.status(self.now()) not in REMOVAL_STATUSES:
            self._free_at(simulated_machine.remove(machine, self.now(), self.times), machine)
            self.timeline.add(machine.gone_at or self.now(), Due.VANISH, machine.id)
        return machine

    def edit(
        self, machine_id: str, ports: Sequence[ExposedPort] | None, add_disk_gb: int
    ) -> SimulatedMachine:
        """Change the exposed ports and enlarge the root disk."""
        machine = self.find(machine_id)
        request = machine.request
        if ports is not None:
            check_ports(ports, request.tools)
            request = replace(request, ports=tuple(ports))
        if request.disk_gb + add_disk_gb > DISK_GB_MAX:
            raise invalid("expandRootDisk", f"the disk cannot be larger than {DISK_GB_MAX} GB")
        machine.request = replace(request, disk_gb=request.disk_gb + add_disk_gb)
        if add_disk_gb:
            machine.disks = [*machine.disks, Dated(self.now(), machine.request.disk_gb)]
        machine.proxy_ports = (
            proxy_ports(machine.request, machine.proxy_ports, self.rng) | machine.proxy_ports
        )
        return machine

    def upgrade(self, machine_id: str, change: Callable[[CreateRequest], CreateRequest]) -> SimulatedMachine:
        """Replace image, variables and command, which resets the machine."""
        machine = self._find_in(machine_id, "upgrade", "running")
        machine.request = change(machine.request)
        simulated_machine.reset(machine, self.now(), self.times)
        return machine

    def migrate(self, machine_id: str) -> str:
        """Move a machine to another host of its cluster and return the id of the job."""
        machine = self._find_in(machine_id, "migrate", "exited", "running")
        refusal = SimulatedError(400, "MIGRATE_INSUFFICIENT_RESOURCE", "no host has room for the instance")
        self._take_units(machine, refusal)
        running_at = simulated_machine.migrate(machine, self.now(), self.times)
        machine.proxy_ports = proxy_ports(machine.request, machine.proxy_ports, self.rng)
        return self.account.add_job("instanceMigrate", machine.id, self.now(), running_at)

    def set_auto_migrate(self, machine_id: str, *, is_open: bool) -> SimulatedMachine:
        """Set whether the machine moves by itself when it is evicted."""
        machine = self.find(machine_id)
        machine.auto_migrate = is_open
        return machine

    def reclaim(self, machine_id: str, notice_s: float | None = None) -> SimulatedMachine:
        """Announce the eviction of a spot machine now; by default with an hour of notice."""
        machine = self._find_in(machine_id, "reclaim", "running")
        if machine.request.billing_mode != "spot":
            raise SimulatedError(400, "UNSUPPORTED_BILLING_MODE", "only a spot instance can be reclaimed")
        notice_s = self.times.spot_notice if notice_s is None else notice_s / self.speed
        end_at = simulated_machine.announce_reclaim(
            machine, self.now(), notice_s, self.times, show_time_at_notice=False
        )
        self.timeline.add(end_at, Due.RECLAIM, machine.id)
        return machine

    def prewarm(self, request: PrewarmRequest, call: Call) -> str:
        """Begin to pull an image into a cluster and return the id of the task."""
        if request.auth_id and request.auth_id not in self.account.registry_auths:
            raise not_found("repository auth")
        allowed = self.account.may_pull(request.image_url, request.auth_id)
        failed = fault_effects.failed_pull(self.faults, call, allowed=allowed)
        return self.prewarms.create(
            request,
            self.now(),
            pending_s=self.times.prewarm_pending,
            pull_s=fault_effects.slowed_s(self.faults, call, self.times.prewarming),
            failure=failed.message if failed else "",
        )

    def handle_event(self, event: TimelineEvent) -> None:
        if event.due is Due.COMMIT:
            self._commit(event)
            return
        if event.due in MARKET:
            handle_market(self, event)
            return
        machine = self.machines[event.machine_id]
        match event.due:
            case Due.RECLAIM:
                self._evict(machine, event.at)
            case Due.FREE:
                self._release_units(machine)
            case _:
                del self.listed[machine.id]

    def _commit(self, event: TimelineEvent) -> None:
        commands = {"start": self.start, "stop": self.stop, "restart": self.restart, "delete": self.delete}
        call = Call(ApiEndpoint(event.endpoint), machine_id=event.machine_id)
        try:
            if event.request is not None:
                call = replace(call, name=event.request.name, machine_id=self.create(event.request))
            elif event.endpoint in commands:
                commands[event.endpoint](event.machine_id)
        except SimulatedError as error:
            # The caller is gone; only the log can show the error.
            self.record.note(event.at, call, f"late {error.status} {error.reason}")
        else:
            self.record.note(event.at, call, "committed late")

    def _evict(self, machine: SimulatedMachine, at: float) -> None:
        called_off = machine.reclaim is None or machine.reclaim.end_at != at
        if called_off or machine.status(at) in REMOVAL_STATUSES:
            return
        machine.replan(at, StatusChange(at, "exited"))
        self._release_units(machine)
        if machine.auto_migrate:
            # Without room elsewhere it stays on its host.
            with suppress(SimulatedError):
                self.migrate(machine.id)

    def _boot(self, machine: SimulatedMachine, call: Call) -> None:
        pull_s, request = self._jittered(self.times.pulling), machine.request
        if self.prewarms.is_warm(request.image_url, machine.cluster_id, request.product_id, self.now()):
            pull_s *= PREWARMED_SHARE
        allowed = self.account.may_pull(request.image_url, request.image_auth_id, request.image_auth)
        failed = fault_effects.failed_pull(self.faults, call, allowed=allowed)
        if failed is None:
            pull_s = fault_effects.slowed_s(self.faults, call, pull_s)
        running_at = simulated_machine.boot(machine, self.now(), self.times, pull_s)
        if failed is not None:
            freed_at = simulated_machine.fail_pull(machine, failed.message, stuck=failed.stuck)
            if freed_at is not None:
                self._free_at(freed_at, machine)
        machine.proxy_ports = proxy_ports(machine.request, machine.proxy_ports, self.rng)
        self._plan_reclaim(machine, call, running_at)

    def _plan_reclaim(self, machine: SimulatedMachine, call: Call, running_at: float) -> None:
        end_at = fault_effects.plan_reclaim(self.faults, call, machine, running_at, self.times, self.speed)
        if end_at is None:
            end_at = self._reclaim_by_weather(machine, running_at)
        if end_at is not None:
            self.timeline.add(end_at, Due.RECLAIM, machine.id)

    def _reclaim_by_weather(self, machine: SimulatedMachine, running_at: float) -> float | None:
        """Announce an eviction if the market settings require it; return when it is over."""
        after_s = reclaim_after_s(self.weather, self.times.spot_guaranteed, self.reclaim_rng)
        runs = math.isfinite(running_at) and machine.failure is None
        if after_s is None or machine.request.billing_mode != "spot" or not runs:
            return None
        notice = notice_s(self.weather, self.times.spot_notice, self.reclaim_rng)
        return simulated_machine.announce_reclaim(
            machine, running_at + after_s, notice, self.times, show_time_at_notice=False
        )

    def _take_units(self, machine: SimulatedMachine, refusal: SimulatedError) -> None:
        """Reserve GPUs, unless the machine has them. A stopped machine has none."""
        request = machine.request
        if machine.holds_units or request.kind == "cpu":
            return
        if self.free_units(request.product_id, machine.cluster_id) < request.gpu_num:
            raise refusal
        self.stock_levels.take(request.product_id, machine.cluster_id, request.gpu_num)
        machine.holds_units = True

    def _free_at(self, at: float, machine: SimulatedMachine) -> None:
        self.timeline.add(at, Due.FREE, machine.id)

    def _release_units(self, machine: SimulatedMachine) -> None:
        # A machine that is deleted while it stops gets here twice.
        if machine.holds_units:
            request = machine.request
            self.stock_levels.release(request.product_id, machine.cluster_id, request.gpu_num)
            machine.holds_units = False

    def _find_in(self, machine_id: str, action: str, *statuses: str) -> SimulatedMachine:
        machine = self.find(machine_id)
        status = machine.status(self.now())
        if status not in statuses:
            raise invalid_state(action, status)
        return machine

    def _check_references(self, request: CreateRequest) -> None:
        if request.image_auth_id and request.image_auth_id not in self.account.registry_auths:
            raise not_found("image auth")
        for storage in request.network_storages:
            self.volumes.check_mount(storage.id, request.cluster_id)
        if request.network_id:
            raise SimulatedError(400, "NETWORK_NOT_FOUND", "network not found")

    def _jittered(self, seconds: float) -> float:
        return seconds * self.rng.uniform(1 - PULL_JITTER, 1 + PULL_JITTER)


MARKET = frozenset({Due.PRICE, Due.STOCK})


def set_price(
    state: WorldState, product_id: str, *, price: int | None = None, spot_price: int | None = None
) -> Product:
    """Change a product's price from now on, in price units. Running machines may follow."""
    product = state.catalogue.product(product_id)
    if product is None:
        raise ValueError(f"there is no product {product_id!r}")
    changed = replace(
        product,
        price=product.price if price is None else price,
        spot_price=product.spot_price if spot_price is None else spot_price,
    )
    state.catalogue = replace(
        state.catalogue,
        products=tuple(changed if it.id == product_id else it for it in state.catalogue.products),
    )
    if state.weather.price_follows:
        for machine in state.listed.values():
            if machine.request.product_id == product_id:
                reprice(state, machine)
    return changed


def reprice(state: WorldState, machine: SimulatedMachine) -> None:
    """Set a machine's price to today's price of its product."""
    today = price_today(state, machine)
    if today is not None and today != machine.price:
        machine.prices = [*machine.prices, Dated(state.now(), today)]


def price_today(state: WorldState, machine: SimulatedMachine) -> int | None:
    """Return the price of a new machine like this one; None if it is not sold."""
    product = state.catalogue.product(machine.request.product_id)
    if product is None:
        return None
    return product.spot_price if machine.request.billing_mode == "spot" else product.price


def set_weather(state: WorldState, weather: Weather) -> None:
    """Let the market move as told from now on; what was planned before is given up."""
    state.tick()
    state.weather = weather
    state.timeline.drop(MARKET)
    state.stock_levels.withheld.clear()
    state.first_prices = {it.id: it.spot_price for it in state.catalogue.products}
    if weather.price_range:
        state.timeline.add(state.now() + weather.walk_every_s, Due.PRICE, "")
    for product_id, cluster_id, _ in state.stock_levels:
        _plan_stock(state, product_id, cluster_id)


def handle_market(state: WorldState, event: TimelineEvent) -> None:
    """Carry out a move of the market and plan the next."""
    if event.due is Due.STOCK:
        state.stock_levels.withheld ^= {(event.product_id, event.cluster_id)}
        _plan_stock(state, event.product_id, event.cluster_id)
        return
    for product in state.catalogue.products:
        if product.spot_price:
            began_at = state.first_prices.get(product.id, product.spot_price)
            price = walked(product, began_at, state.weather, state.weather_rng)
            set_price(state, product.id, spot_price=price)
    state.timeline.add(state.now() + state.weather.walk_every_s, Due.PRICE, "")


def _plan_stock(state: WorldState, product_id: str, cluster_id: str) -> None:
    in_stock = (product_id, cluster_id) not in state.stock_levels.withheld
    seconds = stock_turn_s(state.weather, state.weather_rng, in_stock=in_stock)
    if seconds is not None:
        at = state.now() + seconds
        state.timeline.add(at, Due.STOCK, "", product_id=product_id, cluster_id=cluster_id)
