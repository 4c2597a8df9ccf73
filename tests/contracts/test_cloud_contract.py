"""What the cloud behind the port promises, run on the real adapter over HTTP and in this process."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from decimal import Decimal
from random import Random

import pytest

from gpuherd.adapters.novita.novita_call import Exchange
from gpuherd.adapters.novita.novita_cloud import NovitaCloud
from gpuherd.adapters.novita.novita_transport import NovitaTransport
from gpuherd.domain.cloud.machine import ConnectionDetails, Phase
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.cloud.template import CreateCall
from gpuherd.domain.errors import (
    CloudRefused,
    CloudTimeout,
    CloudUnavailable,
    GpuherdError,
    KeyRefused,
    MachineGone,
    NotFound,
    OutcomeUnknown,
    OutOfStock,
    RateLimited,
)
from gpuherd.domain.instance.rent_attempt import Tag, cloud_name, parse_tag
from gpuherd.domain.secret import Secret
from gpuherd.ports.cloud_port import Cloud
from gpuherd.resilience.circuit_breaker import CircuitBreaker
from gpuherd.resilience.rate_limiter import RateLimiter
from gpuherd.simulator.faults import FAULT_KIND_SPECS, ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.simulated_catalogue import StoredTemplate as KeptTemplate
from gpuherd.simulator.simulated_request import CreateRequest
from gpuherd.simulator.simulator_app import start_simulator
from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock
from tests.support.simulated_cloud import SimulatedCloud

PRODUCT, CLUSTER, REGION = "4090.16c62g", "us-ca-6", "US-CA-06"
TAG = Tag("abcd1234", "01jcqz0000000000000000test", 1)
BOOT_S = 60
# Over HTTP these seconds are real: enough to be sent on a busy machine, few enough to wait for.
IMPATIENT_S = 0.5
ALL = (*ApiEndpoint,)
COMMANDS = ("start", "stop", "restart", "delete")


@pytest.fixture
def clock() -> FakeClock:
    # By itself: waits between tries cost no time, and nothing else here sleeps.
    return FakeClock(auto=True)


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock, Random(7))


async def order_for(
    cloud: Cloud, *, template_id: str = "101", mode: BillingMode = BillingMode.SPOT
) -> CreateCall:
    offers = await cloud.list_offers(mode)
    offer = next(each for each in offers if (each.product_id, each.cluster_id) == (PRODUCT, CLUSTER))
    template = await cloud.get_template(template_id)
    return CreateCall(cloud_name("My Job", TAG), str(TAG), offer, template, 1, 60, mode)


async def running_machine(cloud: Cloud, clock: FakeClock) -> str:
    cloud_id = await cloud.create_machine(await order_for(cloud))
    await clock.advance(BOOT_S)
    return cloud_id


async def stopped_machine(cloud: Cloud, clock: FakeClock) -> str:
    cloud_id = await running_machine(cloud, clock)
    await cloud.stop_machine(cloud_id)
    await clock.advance(BOOT_S)
    return cloud_id


async def phase_of(cloud: Cloud, cloud_id: str) -> Phase:
    return (await cloud.get_machine(cloud_id)).phase


def command(cloud: Cloud, verb: str):
    return getattr(cloud, f"{verb}_machine")


OpenCloud = Callable[[float], Cloud]
"""Opens one more way to the same world, which waits for an answer as many seconds."""


class CloudContract:
    """Needs a fixture `open_cloud`; the cloud that it opens must reach `world` and live by `clock`."""

    @pytest.fixture
    def cloud(self, open_cloud: OpenCloud) -> Cloud:
        return open_cloud(10.0)

    @pytest.fixture
    def impatient(self, open_cloud: OpenCloud) -> Cloud:
        return open_cloud(IMPATIENT_S)

    # Catalogue

    async def test_regions_have_a_code_a_label_and_the_cluster_that_the_wire_wants(self, cloud: Cloud):
        regions = await cloud.list_regions()
        assert len(regions) == 9
        hong_kong = next(region for region in regions if region.is_called("cn-hk-01"))
        assert hong_kong.cluster_id == "cn-hongkong-1"
        assert hong_kong.label == "CN-HK-01 (Hong Kong)"
        assert "RTX 4090 24GB" in hong_kong.gpu_names

    async def test_every_product_is_offered_in_each_region_that_sells_it(self, cloud: Cloud, world: World):
        offers = await cloud.list_offers(BillingMode.ON_DEMAND)
        sold = {(each.id, where) for each in world.catalogue.products for where in each.cluster_ids}
        assert {(offer.product_id, offer.cluster_id) for offer in offers} == sold
        assert len(offers) == len(sold)
        codes = {region.cluster_id: region.code for region in await cloud.list_regions()}
        assert all(offer.region == codes[offer.cluster_id] for offer in offers)

    async def test_prices_are_dollars_and_missing_where_a_thing_is_not_sold_that_way(self, cloud: Cloud):
        offers = {offer.product_id: offer for offer in await cloud.list_offers(BillingMode.ON_DEMAND)}
        assert offers[PRODUCT].gpu_hourly_usd(BillingMode.SPOT) == Decimal("0.175")
        assert offers[PRODUCT].gpu_hourly_usd(BillingMode.ON_DEMAND) == Decimal("0.35")
        assert offers["B200-180GB.28c240g"].spot_usd is None
        assert all(offer.spot_usd for offer in await cloud.list_offers(BillingMode.SPOT))

    async def test_what_is_sold_out_is_still_on_the_list(self, cloud: Cloud, world: World):
        product = next(each for each in world.catalogue.products if each.id == PRODUCT)
        for cluster_id in product.cluster_ids:
            world.stock(PRODUCT, cluster_id, 0)
        sold_out = [each for each in await cloud.list_offers(BillingMode.SPOT) if each.product_id == PRODUCT]
        assert len(sold_out) == 3
        assert all(not offer.available and offer.stock == "none" for offer in sold_out)

    async def test_all_templates_are_listed_however_many_there_are(self, cloud: Cloud, world: World):
        for n in range(1000, 1234):
            world.account.templates[str(n)] = KeptTemplate(str(n), f"mine {n}", "ubuntu")
        templates = await cloud.list_templates()
        assert {each.template_id for each in templates} == set(world.account.templates)
        assert len(templates) == len(world.account.templates)

    async def test_a_template_comes_with_all_that_a_machine_needs(self, cloud: Cloud, world: World):
        kept = world.account.templates["101"]
        template = await cloud.get_template("101")
        assert template == next(each for each in await cloud.list_templates() if each.template_id == "101")
        assert (template.name, template.image, template.command) == (
            kept.name,
            kept.image,
            kept.start_command,
        )
        assert template.ports == ((8888, "http"), (22, "tcp"))

    @pytest.mark.parametrize("template_id", ["999999", "x", "1&templateId=101", "../101"])
    async def test_a_template_that_is_not_there_is_not_found(self, cloud: Cloud, template_id: str):
        with pytest.raises(NotFound) as caught:
            await cloud.get_template(template_id)
        assert caught.value.code == "TEMPLATE_NOT_FOUND"

    async def test_a_registry_credential_is_known_by_its_id_alone(self, cloud: Cloud, world: World):
        (auth,) = world.account.registry_auths.values()
        await cloud.check_registry_auth(auth.id)
        for unknown in ("nope", "", auth.name, auth.username, auth.password):
            with pytest.raises(NotFound) as caught:
                await cloud.check_registry_auth(unknown)
            assert caught.value.code == "REGISTRY_AUTH_NOT_FOUND"
            assert auth.password not in str(caught.value)

    # Create

    async def test_a_create_rents_one_machine_that_carries_its_tag(self, cloud, world, clock):
        cloud_id = await running_machine(cloud, clock)
        assert [machine.id for machine in world.alive()] == [cloud_id]
        machine = await cloud.get_machine(cloud_id)
        assert machine.name == cloud_name("My Job", TAG)
        assert parse_tag(machine.name) == TAG
        assert machine.env_tag == str(TAG)
        assert (machine.cluster_id, machine.region, machine.product_id) == (CLUSTER, REGION, PRODUCT)
        assert (machine.gpu_num, machine.disk_gb, machine.billing_mode) == (1, 60, "spot")

    async def test_a_private_image_is_pulled_with_the_credential_that_the_template_names(
        self, cloud, world, clock
    ):
        private = next(each for each in world.account.templates.values() if each.image_auth_id)
        cloud_id = await cloud.create_machine(await order_for(cloud, template_id=private.id))
        await clock.advance(BOOT_S)
        assert await phase_of(cloud, cloud_id) is Phase.RUNNING

    async def test_a_create_without_stock_rents_nothing(self, cloud, world):
        order = await order_for(cloud)
        world.stock(PRODUCT, CLUSTER, 0)
        with pytest.raises(OutOfStock):
            await cloud.create_machine(order)
        assert world.machines == {}

    @pytest.mark.parametrize(
        ("status", "reason", "kind", "code"),
        [
            (400, "INSUFFICIENT_RESOURCE", OutOfStock, "RESOURCE_CONSTRAINTS"),
            (400, "CREATE_GPU_NUM_LIMIT", OutOfStock, "RESOURCE_CONSTRAINTS"),
            (400, "BALANCE_NOT_ENOUGH", CloudRefused, "INSUFFICIENT_BALANCE"),
            (402, "EXPIRED_OR_BALANCE_NOT_ENOUGH", CloudRefused, "INSUFFICIENT_BALANCE"),
            (400, "CREATE_INSTANCE_LIMIT", CloudRefused, "QUOTA_EXCEEDED"),
            (401, "UNAUTHORIZED", KeyRefused, "AUTHENTICATION_FAILED"),
            (403, "FORBIDDEN", KeyRefused, "AUTHENTICATION_FAILED"),
            (400, "VALIDATOR_PARAM", CloudRefused, "CLOUD_REFUSED"),
            (404, "RESOURCE_NOT_FOUND", CloudRefused, "CLOUD_REFUSED"),
            (409, "CONFLICT", CloudRefused, "CLOUD_REFUSED"),
            (422, "REQUEST", CloudRefused, "CLOUD_REFUSED"),
        ],
    )
    async def test_a_clear_no_to_a_create_is_told_apart(self, cloud, world, status, reason, kind, code):
        order = await order_for(cloud)
        world.faults.add(
            Fault(FaultKind.REFUSE, status=status, reason=reason, endpoints=(ApiEndpoint.CREATE,))
        )
        with pytest.raises(GpuherdError) as caught:
            await cloud.create_machine(order)
        assert (type(caught.value), caught.value.code) == (kind, code)
        assert world.machines == {}
        assert world.calls["create"] == 1

    async def test_an_order_that_makes_no_sense_is_refused(self, cloud, world):
        order = await order_for(cloud)
        nonsense = (
            replace(order, gpu_num=99),
            replace(order, disk_gb=10**6),
            replace(order, template=replace(order.template, image="")),
            replace(order, template=replace(order.template, ports=((2222, "tcp"),))),
            replace(order, offer=replace(order.offer, product_id="no-such-product")),
            replace(order, offer=replace(order.offer, cluster_id="no-such-cluster")),
            replace(order, template=replace(order.template, registry_auth_id="no-such-login")),
        )
        for each in nonsense:
            with pytest.raises(CloudRefused):
                await cloud.create_machine(each)
        assert world.machines == {}

    @pytest.mark.proves("F6")
    @pytest.mark.parametrize(
        ("fault", "rented"),
        [
            (Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT), 0),
            (Fault(FaultKind.LOST_REPLY_AFTER_COMMIT), 1),
            (Fault(FaultKind.LATE_COMMIT, seconds=20), 0),
            (Fault(FaultKind.ERROR_AFTER_COMMIT), 1),
            (Fault(FaultKind.ERROR_AFTER_COMMIT, status=504), 1),
            (Fault(FaultKind.REFUSE, status=500), 0),
            (Fault(FaultKind.REFUSE, status=408), 0),
            (Fault(FaultKind.OUTAGE), 0),
            (Fault(FaultKind.OUTAGE, style="html"), 0),
            (Fault(FaultKind.OUTAGE, style="html", status=403), 0),
            (Fault(FaultKind.OUTAGE, style="cut"), 0),
            *(
                (Fault(FaultKind.GARBAGE, style=style), 1)
                for style in FAULT_KIND_SPECS[FaultKind.GARBAGE].styles
                if style != "wrong_type"
            ),
        ],
        ids=lambda value: (
            f"{value.kind} {value.style} {value.status or ''}" if isinstance(value, Fault) else ""
        ),
    )
    async def test_a_create_without_a_clear_answer_is_unknown_and_sent_once(
        self, cloud, world, fault, rented
    ):
        order = await order_for(cloud)
        world.faults.add(replace(fault, endpoints=(ApiEndpoint.CREATE,)))
        with pytest.raises(OutcomeUnknown):
            await cloud.create_machine(order)
        assert world.calls["create"] == 1
        assert len(world.machines) == rented

    @pytest.mark.parametrize(("style", "rented"), [("before_commit", 0), ("after_commit", 1)])
    async def test_a_create_that_is_not_answered_in_time_is_unknown(
        self, cloud, impatient, world, style, rented
    ):
        order = await order_for(cloud)
        world.faults.add(
            Fault(FaultKind.HANG, seconds=math.inf, style=style, endpoints=(ApiEndpoint.CREATE,))
        )
        with pytest.raises(OutcomeUnknown):
            await impatient.create_machine(order)
        assert world.calls["create"] == 1
        assert len(world.machines) == rented

    async def test_an_id_counts_whatever_its_content_type(self, cloud, world):
        order = await order_for(cloud)
        world.faults.add(Fault(FaultKind.GARBAGE, style="wrong_type"))
        cloud_id = await cloud.create_machine(order)
        assert list(world.machines) == [cloud_id]

    @pytest.mark.parametrize(("retry_after", "expected_s"), [("7", 7), ("soon", None), ("99999999", 300)])
    async def test_too_many_calls_means_not_rented_and_when_to_come_back(
        self, cloud, world, retry_after, expected_s
    ):
        order = await order_for(cloud)
        world.faults.add(
            Fault(FaultKind.RATE_LIMIT, retry_after=retry_after, endpoints=(ApiEndpoint.CREATE,))
        )
        with pytest.raises(RateLimited) as caught:
            await cloud.create_machine(order)
        assert caught.value.retry_after_s == expected_s
        assert world.machines == {}
        assert world.calls["create"] == 1

    # Looking

    async def test_an_account_without_machines_has_a_complete_and_empty_list(self, cloud, clock):
        before = clock.now()
        listing = await cloud.list_machines()
        assert listing.machines == ()
        assert listing.complete
        assert before <= listing.started_at <= listing.finished_at <= clock.now()

    @pytest.mark.parametrize("count", [1, 99, 100, 101, 250])
    async def test_all_machines_are_listed_however_many_pages_that_takes(self, cloud, world, count):
        world.page_size_max = 100
        fill(world, count)
        listing = await cloud.list_machines()
        assert {machine.cloud_id for machine in listing.machines} == set(world.machines)
        assert len(listing.machines) == count
        assert listing.complete
        assert world.calls["list"] == math.ceil(count / 100)

    @pytest.mark.parametrize("style", FAULT_KIND_SPECS[FaultKind.PARTIAL_LIST].styles)
    @pytest.mark.parametrize("count", [50, 150, 200])
    async def test_a_list_whose_pages_do_not_fit_together_is_not_complete(self, cloud, world, style, count):
        world.page_size_max = 100
        fill(world, count)
        world.faults.add(Fault(FaultKind.PARTIAL_LIST, style=style))
        listing = await cloud.list_machines()
        # The only page cannot be a copy of the one before it.
        assert listing.complete == (style == "duplicated_page" and count == 50)
        assert {machine.cloud_id for machine in listing.machines} <= set(world.machines)

    async def test_a_list_shows_what_a_single_look_shows(self, cloud, clock):
        cloud_id = await running_machine(cloud, clock)
        (listed,) = (await cloud.list_machines()).machines
        assert listed == await cloud.get_machine(cloud_id)

    async def test_a_running_machine_has_its_ports_and_ways_in_and_no_passwords(self, cloud, world, clock):
        cloud_id = await cloud.create_machine(await order_for(cloud))
        assert (await cloud.get_machine(cloud_id)).connection == ConnectionDetails()
        await clock.advance(BOOT_S)
        machine = await cloud.get_machine(cloud_id)
        assert [(port.port, port.type) for port in machine.ports] == [(8888, "http"), (22, "tcp")]
        assert machine.ports[0].endpoint.startswith("http")
        assert machine.connection.ssh.startswith("ssh -p ")
        assert world.machines[cloud_id].ssh_password not in repr(machine)

    async def test_a_machine_goes_through_its_phases(self, cloud, world, clock):
        cloud_id = await cloud.create_machine(await order_for(cloud))

        async def phases(seconds: float) -> list[Phase]:
            seen: list[Phase] = []
            for _ in range(int(seconds * 2)):
                phase = await phase_of(cloud, cloud_id)
                if phase not in seen[-1:]:
                    seen.append(phase)
                await clock.advance(0.5)
            return seen

        assert await phases(40) == [Phase.CREATING, Phase.PULLING, Phase.RUNNING]
        await cloud.stop_machine(cloud_id)
        assert await phases(10) == [Phase.STOPPING, Phase.STOPPED]
        await cloud.start_machine(cloud_id)
        assert await phases(25) == [Phase.STARTING, Phase.RUNNING]
        await cloud.restart_machine(cloud_id)
        assert await phases(25) == [Phase.STARTING, Phase.RUNNING]
        await cloud.delete_machine(cloud_id)
        assert await phases(3) == [Phase.REMOVING, Phase.ABSENT]
        await clock.advance(10)
        with pytest.raises(MachineGone):
            await cloud.get_machine(cloud_id)
        assert (await cloud.list_machines()).machines == ()

    async def test_a_status_that_nobody_knows_is_told_as_it_is(self, cloud, world, clock):
        cloud_id = await running_machine(cloud, clock)
        world.faults.add(Fault(FaultKind.UNKNOWN_STATUS, style="hibernating"))
        machine = await cloud.get_machine(cloud_id)
        assert (machine.phase, machine.raw_status) == (Phase.UNKNOWN, "hibernating")

    async def test_a_failed_pull_says_why(self, cloud, world, clock):
        world.faults.add(Fault(FaultKind.PULL_FAILURE, message="no such image"))
        cloud_id = await running_machine(cloud, clock)
        machine = await cloud.get_machine(cloud_id)
        assert machine.phase is Phase.STOPPED
        assert "no such image" in machine.error

    async def test_a_reclaim_is_announced(self, cloud, world, clock):
        cloud_id = await running_machine(cloud, clock)
        machine = await cloud.get_machine(cloud_id)
        assert (machine.spot_status, machine.spot_reclaim_at) == ("running", None)
        world.reclaim(cloud_id, notice_s=60)
        assert (await cloud.get_machine(cloud_id)).spot_status == "notified"
        await clock.advance(61)
        machine = await cloud.get_machine(cloud_id)
        assert machine.spot_status == "reclaiming"
        assert machine.spot_reclaim_at is not None
        await clock.advance(60)
        machine = await cloud.get_machine(cloud_id)
        assert (machine.spot_status, machine.phase) == ("terminated", Phase.STOPPED)

    async def test_its_logs_have_addresses_while_there_is_something_to_tell(self, cloud, clock):
        cloud_id = await cloud.create_machine(await order_for(cloud))
        while await phase_of(cloud, cloud_id) is not Phase.PULLING:
            await clock.advance(0.5)
        booting = await cloud.get_log_addresses(cloud_id)
        assert booting.system and not booting.instance
        await clock.advance(BOOT_S)
        running = await cloud.get_log_addresses(cloud_id)
        assert running.phase is Phase.RUNNING and running.system != running.instance != ""
        await cloud.stop_machine(cloud_id)
        await clock.advance(BOOT_S)
        assert (await cloud.get_log_addresses(cloud_id)).system == ""
        with pytest.raises(MachineGone):
            await cloud.get_log_addresses("0" * 16)

    @pytest.mark.parametrize(
        "cloud_id", ["0000000000000000", "no such", "a&instanceId=b", "../x", "é%41+", "#"]
    )
    async def test_a_machine_that_is_not_there_is_gone(self, cloud, cloud_id):
        for call in (cloud.get_machine, cloud.start_machine, cloud.stop_machine, cloud.restart_machine):
            with pytest.raises(MachineGone):
                await call(cloud_id)

    async def test_a_denial_of_one_machine_is_passed_on(self, cloud, world, clock):
        cloud_id = await running_machine(cloud, clock)
        world.faults.add(Fault(FaultKind.GET_404_GLITCH, count=1))
        with pytest.raises(MachineGone):
            await cloud.get_machine(cloud_id)
        assert await phase_of(cloud, cloud_id) is Phase.RUNNING

    # Reads are repeated, and end in CloudUnavailable

    @pytest.mark.parametrize(
        "fault",
        [
            Fault(FaultKind.OUTAGE, count=2),
            Fault(FaultKind.OUTAGE, count=2, style="html"),
            Fault(FaultKind.OUTAGE, count=2, style="cut"),
            Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=2, endpoints=ALL),
            Fault(FaultKind.RATE_LIMIT, count=2),
            Fault(FaultKind.RATE_LIMIT, count=2, retry_after="3"),
        ],
        ids=lambda fault: f"{fault.kind} {fault.style}",
    )
    async def test_a_read_outlives_two_failures(self, cloud, world, fault):
        world.faults.add(fault)
        assert (await cloud.list_machines()).complete

    @pytest.mark.parametrize(
        ("fault", "kind"),
        [
            (Fault(FaultKind.OUTAGE), CloudUnavailable),
            (Fault(FaultKind.OUTAGE, status=504), CloudTimeout),
            (Fault(FaultKind.OUTAGE, style="html"), CloudUnavailable),
            (Fault(FaultKind.OUTAGE, style="html", status=404), CloudUnavailable),
            (Fault(FaultKind.OUTAGE, style="cut"), CloudUnavailable),
            (Fault(FaultKind.RATE_LIMIT, retry_after="200"), RateLimited),
            (Fault(FaultKind.REFUSE, status=401, reason="UNAUTHORIZED"), KeyRefused),
            *(
                (Fault(FaultKind.GARBAGE, style=style, endpoints=ALL), CloudUnavailable)
                for style in FAULT_KIND_SPECS[FaultKind.GARBAGE].styles
            ),
        ],
        ids=lambda value: (
            f"{value.kind} {value.style} {value.status or ''}" if isinstance(value, Fault) else ""
        ),
    )
    async def test_a_read_that_fails_for_good_says_so(self, cloud, world, clock, fault, kind):
        cloud_id = await running_machine(cloud, clock)
        world.faults.add(fault)
        reads = {
            "machines": cloud.list_machines,
            "machine": lambda: cloud.get_machine(cloud_id),
            "offers": lambda: cloud.list_offers(BillingMode.SPOT),
            "templates": cloud.list_templates,
            "template": lambda: cloud.get_template("101"),
            "registry": lambda: cloud.check_registry_auth("x"),
        }
        for name, read in reads.items():
            with pytest.raises(GpuherdError) as caught:
                await read()
            assert type(caught.value) is kind, name

    async def test_a_read_that_is_not_answered_in_time_is_repeated_and_then_a_timeout(self, impatient, world):
        world.faults.add(Fault(FaultKind.HANG, seconds=math.inf, count=4))
        with pytest.raises(CloudTimeout):
            await impatient.list_machines()
        assert world.calls["list"] == 3
        assert (await impatient.list_machines()).complete

    # Commands

    async def test_a_start_without_a_free_gpu_is_out_of_stock(self, cloud, world, clock):
        cloud_id = await stopped_machine(cloud, clock)
        world.stock(PRODUCT, CLUSTER, 0)
        with pytest.raises(OutOfStock):
            await cloud.start_machine(cloud_id)
        assert await phase_of(cloud, cloud_id) is Phase.STOPPED

    async def test_a_command_in_the_wrong_state_is_refused_with_a_code(self, cloud, clock):
        cloud_id = await running_machine(cloud, clock)
        with pytest.raises(CloudRefused) as caught:
            await cloud.start_machine(cloud_id)
        assert caught.value.code == "INVALID_STATE_CHANGE"
        await cloud.stop_machine(cloud_id)
        for verb in ("stop", "restart"):
            with pytest.raises(CloudRefused) as caught:
                await command(cloud, verb)(cloud_id)
            assert caught.value.code == "INVALID_STATE_CHANGE"

    async def test_a_start_that_went_through_may_still_be_refused(self, cloud, world, clock):
        cloud_id = await stopped_machine(cloud, clock)
        world.faults.add(Fault(FaultKind.START_WENT_THROUGH))
        with pytest.raises(CloudRefused) as caught:
            await cloud.start_machine(cloud_id)
        assert caught.value.code == "INVALID_STATE_CHANGE"
        assert await phase_of(cloud, cloud_id) is Phase.STARTING

    async def test_addresses_are_new_after_a_start(self, cloud, clock):
        cloud_id = await running_machine(cloud, clock)
        before = (await cloud.get_machine(cloud_id)).connection.ssh
        await cloud.restart_machine(cloud_id)
        await clock.advance(BOOT_S)
        assert (await cloud.get_machine(cloud_id)).connection.ssh != before

    @pytest.mark.parametrize("verb", COMMANDS)
    @pytest.mark.parametrize(
        "fault",
        [
            Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT),
            Fault(FaultKind.LOST_REPLY_AFTER_COMMIT),
            Fault(FaultKind.ERROR_AFTER_COMMIT, status=502),
            Fault(FaultKind.OUTAGE),
            Fault(FaultKind.OUTAGE, style="html"),
            Fault(FaultKind.OUTAGE, style="html", status=404),
            Fault(FaultKind.GARBAGE, style="html"),
            Fault(FaultKind.GARBAGE, style="cut"),
            Fault(FaultKind.GARBAGE, style="text"),
        ],
        ids=lambda fault: f"{fault.kind} {fault.style} {fault.status or ''}",
    )
    async def test_a_command_without_a_clear_answer_is_unknown_and_sent_once(
        self, cloud, world, clock, verb, fault
    ):
        make = stopped_machine if verb == "start" else running_machine
        cloud_id = await make(cloud, clock)
        before = world.calls[verb]
        world.faults.add(replace(fault, endpoints=(ApiEndpoint(verb),)))
        with pytest.raises(OutcomeUnknown):
            await command(cloud, verb)(cloud_id)
        assert world.calls[verb] == before + 1

    @pytest.mark.parametrize("verb", COMMANDS)
    async def test_a_command_that_is_not_answered_in_time_is_unknown(
        self, cloud, impatient, world, clock, verb
    ):
        make = stopped_machine if verb == "start" else running_machine
        cloud_id = await make(cloud, clock)
        world.faults.add(Fault(FaultKind.HANG, seconds=math.inf))
        with pytest.raises(OutcomeUnknown):
            await command(impatient, verb)(cloud_id)

    @pytest.mark.parametrize("style", ["empty", "no_id", "wrong_type"])
    @pytest.mark.parametrize("verb", COMMANDS)
    async def test_a_command_needs_no_particular_answer(self, cloud, world, clock, verb, style):
        make = stopped_machine if verb == "start" else running_machine
        cloud_id = await make(cloud, clock)
        world.faults.add(Fault(FaultKind.GARBAGE, style=style, endpoints=(ApiEndpoint(verb),)))
        await command(cloud, verb)(cloud_id)

    async def test_delete_is_quiet_when_already_gone(self, cloud, world, clock):
        cloud_id = await running_machine(cloud, clock)
        await cloud.delete_machine(cloud_id)
        await cloud.delete_machine(cloud_id)
        await clock.advance(BOOT_S)
        with pytest.raises(MachineGone):
            await cloud.get_machine(cloud_id)
        await cloud.delete_machine(cloud_id)
        await cloud.delete_machine("0000000000000000")
        assert world.alive() == []

    async def test_delete_is_quiet_for_either_way_of_saying_gone(self, cloud, world):
        for status in (400, 404):
            world.faults.replace([Fault(FaultKind.REFUSE, status=status, reason="RESOURCE_NOT_FOUND")])
            await cloud.delete_machine("5f0c9b1d2e3a4f60")

    async def test_a_machine_that_may_not_be_deleted_is_not_taken_for_gone(self, cloud, world, clock):
        cloud_id = await running_machine(cloud, clock)
        world.faults.add(Fault(FaultKind.REFUSE, status=400, reason="PREPAID_INSTANCE_NOT_SUPPORT_RELEASE"))
        with pytest.raises(CloudRefused):
            await cloud.delete_machine(cloud_id)


def fill(world: World, count: int) -> None:
    world.stock(PRODUCT, CLUSTER, count)
    for n in range(count):
        world.create(CreateRequest(product_id=PRODUCT, cluster_id=CLUSTER, name=f"m{n}"))


class TestInProcessCloud(CloudContract):
    """The real adapter on a world in this process, as stories and storms use it."""

    @pytest.fixture
    def open_cloud(self, world: World) -> OpenCloud:
        return lambda patience_s: SimulatedCloud(world, timeout_s=patience_s)


class TestNovitaCloud(CloudContract):
    """The real adapter on Novita's HTTP shapes, over loopback."""

    @pytest.fixture
    async def open_cloud(self, world: World, clock: FakeClock) -> AsyncIterator[OpenCloud]:
        server = await start_simulator(world)
        opened: list[NovitaCloud] = []

        def open_cloud(patience_s: float) -> NovitaCloud:
            transport = NovitaTransport(
                Exchange(server.base_url, Secret("sk_contract"), clock=clock),
                clock=clock,
                rng=Random(7),
                limiter=RateLimiter(clock, per_minute=0),
                # The breaker has tests of its own; here it would hide what each call says.
                breaker=CircuitBreaker(clock, threshold=10**6),
                request_timeout_s=patience_s,
            )
            opened.append(NovitaCloud(transport, clock=clock))
            return opened[-1]

        yield open_cloud
        for cloud in opened:
            await cloud.close()
        await server.close()
