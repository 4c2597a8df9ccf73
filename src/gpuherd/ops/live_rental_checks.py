"""The paid checks of `doctor --live`: one rental through the server, its machine, and its bill."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from gpuherd import __version__
from gpuherd.adapters.novita import novita_json
from gpuherd.adapters.novita.novita_billing import read_charge
from gpuherd.adapters.novita.novita_call import Exchange, NovitaReply
from gpuherd.adapters.novita.novita_json import text, whole
from gpuherd.adapters.novita.paged_list import PAGE_SIZE
from gpuherd.bootstrap.key_files import CannotStart
from gpuherd.client.async_client import AsyncGpuherd
from gpuherd.client.client_errors import BadConfiguration
from gpuherd.domain.money.bill import BillCategory
from gpuherd.entrypoints.cli.cli_errors import ExitCode
from gpuherd.ops import live_assumptions
from gpuherd.ops.doctor_results import (
    CannotLook,
    LiveFinding,
    Quote,
    Rented,
)
from gpuherd.ops.doctor_server_checks import server_address
from gpuherd.ops.live_assumptions import NovitaCalls, spacing_s
from gpuherd.ops.live_checks import (
    FreeLook,
    look,
    read_bill,
    read_metrics,
    rows_of,
    unread,
)
from gpuherd.ops.live_machine_checks import MachineStory, Sighting, judge_story
from gpuherd.ops.live_rentals import (
    Rentals,
    RentalState,
    RentPlan,
    ServerRentals,
    plan_of,
)
from gpuherd.ports.clock_port import Clock
from gpuherd.settings import Settings

ASK_AGAIN = "no rows yet; ask again tomorrow: gpuherd doctor --live --report FILE"


# One poll at each end of each run.
SLACK_S = 8.0


async def look_at_bill(calls: NovitaCalls, machine: Mapping[str, Any]) -> LiveFinding:
    """Read the bill rows of the machine's hours."""
    sent_at = _moment(machine.get("sentAt"))
    if sent_at is None or not machine.get("cloudInstanceId"):
        return live_assumptions.BILL_SPAN.not_seen("the report does not say which machine")
    begin = sent_at.replace(minute=0, second=0, microsecond=0)
    try:
        reply = await read_bill(calls, begin, begin + timedelta(hours=3))
    except CannotLook as cannot:
        # The other findings must not be lost.
        return live_assumptions.BILL_SPAN.not_seen(str(cannot))
    return judge_bill(machine, reply)


def judge_bill(machine: Mapping[str, Any], reply: NovitaReply) -> LiveFinding:
    """Compare the billed seconds and the price with the observed runs."""
    rows = rows_of(reply, "bills")
    if rows is None:
        return live_assumptions.BILL_SPAN.differs(unread(reply))
    mine = [row for row in rows if text(row, "ownerID") == machine["cloudInstanceId"]]
    charges = [it for row in mine if (it := read_charge(row, BillCategory.GPU)) is not None]
    if not charges:
        return live_assumptions.BILL_SPAN.not_seen(ASK_AGAIN)
    billed_s = sum(it.quantity for it in charges)
    runs = [run for run in machine.get("runs") or () if isinstance(run, Mapping)]
    seen = {name: _seconds(runs, name) for name in ("paid", "running")}
    # Until the request of the stop, or until it was done.
    longest_s = _seconds(runs, "paid", "exited")
    prices = {it.unit_usd for it in charges if it.unit_usd is not None}
    agreed = _decimal(machine.get("gpuHourlyUsd"))
    told = ", ".join(map(str, sorted(prices))) or "no price"
    words = (
        f"{billed_s} s billed in {len(charges)} rows at {told} USD; "
        f"seen {seen['paid']:.0f} to {longest_s:.0f} s from pulling, {seen['running']:.0f} s running"
    )
    fits = seen["paid"] - SLACK_S <= billed_s <= longest_s + SLACK_S
    facts = {"billedSeconds": billed_s, "fromPullingSeconds": round(longest_s), "rows": len(charges)}
    return live_assumptions.BILL_SPAN.judged(fits and prices == {agreed}, words, **facts)


def _seconds(runs: Iterable[Mapping[str, Any]], begin: str, end: str = "ended") -> float:
    total = 0.0
    for run in runs:
        since, until = _moment(run.get(begin)), _moment(run.get(end)) or _moment(run.get("ended"))
        if since is not None and until is not None:
            total += (until - since).total_seconds()
    return total


def _moment(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def _decimal(value: object) -> Decimal | None:
    try:
        return Decimal(value) if isinstance(value, str) else None
    except InvalidOperation:
        return None


Tell = Callable[[str], None]


# The product and the image do not exist, so this cannot rent.
IMPOSSIBLE_CREATE = {
    "name": "gpuherd-doctor-refused",
    "productId": "gpuherd-doctor-no-such-product",
    "gpuNum": 1,
    "rootfsSize": 10,
    "imageUrl": "gpuherd-doctor.invalid/none",
    "kind": "gpu",
    "billingMode": "spot",
}


PAGES_MAX = 20


# A slow step is polled less often.
PAUSE_MAX_S = 5.0


@dataclass
class PaidChecks:
    """Rents through the server, and observes Novita directly."""

    calls: NovitaCalls
    rentals: Rentals
    plan: RentPlan
    # How late a machine may be listed before the check gives up.
    list_limit: timedelta
    tell: Tell
    _renewed_s: float = field(default=float("-inf"))

    async def run(self) -> MachineStory:
        """Return the observations, however far it got. The rental is deleted before."""
        story = MachineStory(sent_at=self._now())
        try:
            await self._refused_create(story)
            rental = await self._rent(story)
            await self._boot(story, rental.id)
            await self._refused_start(story)
            await self._stop_and_start(story, rental.id)
            story.metrics = await read_metrics(self.calls, _known(story.cloud_id))
        except CannotLook as cannot:
            story.broke_off = str(cannot)
        finally:
            story.asked["delete"] = self._now()
            # guard: the doctor removes what it rented, however it ends
            await self._remove(story)
        await self._see_it_gone(story)
        return story

    async def _refused_create(self, story: MachineStory) -> None:
        self.tell("step refused: a create that names nothing which could be rented")
        reply = await self.calls.post("/gpu/instance/create", IMPOSSIBLE_CREATE)
        story.refused_create = reply
        if reply.is_success and (cloud_id := novita_json.read_id(reply.body or {})):
            await self.calls.post("/gpu/instance/delete", {"instanceId": cloud_id})
            raise CannotLook("Novita rented a product that does not exist; the machine was deleted again")

    async def _rent(self, story: MachineStory) -> RentalState:
        self.tell("step rent: the cheapest machine, through the gpuherd server")
        story.sent_at = self._now()
        made = rental = await self.rentals.create(self.plan)
        deadline = self._now() + self.plan.step_limit
        while rental.cloud_id is None:
            if rental.status in ("failed", "deleting", "deleted") or self._now() > deadline:
                raise CannotLook(f"nothing was rented: {rental.trouble or rental.status}")
            await self.calls.clock.sleep(self.calls.spacing_s)
            rental = await self.rentals.get(made.id)
        story.cloud_id, story.gpu_usd = rental.cloud_id, rental.gpu_usd
        return rental

    async def _boot(self, story: MachineStory, rental_id: str) -> None:
        self.tell("step boot: statuses, and when the list shows it")
        give_up_at = story.sent_at + min(self.list_limit, self.plan.boot_limit)
        deadline = self._now() + self.plan.boot_limit
        while story.row is None or (story.listed_after_s is None and self._now() < give_up_at):
            row = await self._look(story)
            if story.listed_after_s is None:
                await self._look_for_listing(story)
            if text(row, "status") == "running" and story.row is None:
                story.row = row
            await self._go_on(story, rental_id, deadline)
        story.listed_row = await self._listed(story)

    async def _look_for_listing(self, story: MachineStory) -> None:
        found = await self._listed(story)
        after_s = (self._now() - story.sent_at).total_seconds()
        if found is None:
            story.unlisted_after_s = after_s
        else:
            story.listed_after_s = after_s

    async def _refused_start(self, story: MachineStory) -> None:
        body = {"instanceId": story.cloud_id}
        story.refused_start = await self.calls.post("/gpu/instance/start", body)

    async def _stop_and_start(self, story: MachineStory, rental_id: str) -> None:
        self.tell("step stop: what a stop leaves")
        await self._until_known("running", story, rental_id)
        story.asked["stop"] = self._now()
        await self.rentals.stop(rental_id)
        story.row_stopped = await self._until("exited", story, rental_id)
        await self._until_known("exited", story, rental_id)
        self.tell("step start: whether ports, price and stamps change")
        await self.rentals.renew(rental_id, self.plan.lease)
        story.asked["start"] = self._now()
        await self.rentals.start(rental_id)
        story.row_restarted = await self._until("running", story, rental_id)

    async def _until(self, status: str, story: MachineStory, rental_id: str) -> dict[str, Any]:
        deadline = self._now() + self.plan.step_limit
        while text(row := await self._look(story), "status") != status:
            await self._go_on(story, rental_id, deadline)
        return row

    async def _until_known(self, status: str, story: MachineStory, rental_id: str) -> None:
        """Wait until the server knows the status. Until then it rejects the next order."""
        deadline = self._now() + self.plan.step_limit
        while (await self.rentals.get(rental_id)).status != status:
            await self._go_on(story, rental_id, deadline)

    async def _remove(self, story: MachineStory) -> None:
        self.tell("step remove: the machine is deleted")
        try:
            await self.rentals.remove_all()
        except CannotLook as cannot:
            minutes = int(self.plan.lease.total_seconds() // 60)
            story.broke_off = (
                f"it could not be deleted ({cannot}); its lease ends it within {minutes} minutes"
            )
            self.tell(story.broke_off)

    async def _see_it_gone(self, story: MachineStory) -> None:
        if story.cloud_id is None:
            return
        deadline = self._now() + self.plan.step_limit
        try:
            while story.gone is None and self._now() < deadline:
                reply = await self.calls.get("/gpu/instance", instanceId=story.cloud_id)
                if not reply.is_success:
                    story.gone = reply
                await self.calls.clock.sleep(self.calls.spacing_s)
            if story.gone is not None:
                body = {"instanceId": story.cloud_id}
                story.deleted_again = await self.calls.post("/gpu/instance/delete", body)
            story.creates_blocked = await self.rentals.creates_blocked()
        except CannotLook as cannot:
            story.broke_off = story.broke_off or str(cannot)

    async def _look(self, story: MachineStory) -> dict[str, Any]:
        """Read the machine and record its status."""
        at = self._now()
        reply = await self.calls.get("/gpu/instance", instanceId=_known(story.cloud_id))
        if reply.status == 429:
            return {}
        if not reply.is_success or reply.body is None:
            where = "with NOVITA_API_KEY; is the server's account another one?"
            raise CannotLook(f"the rented machine cannot be read {where} ({unread(reply)})")
        row = reply.body
        status = text(row, "status")
        if not story.sightings or story.sightings[-1].status != status:
            story.sightings.append(Sighting(at, status))
        machine = novita_json.read_machine(row, lambda _: reply.secrets)
        if machine is not None and machine.error:
            raise CannotLook(f"Novita says of the machine: {machine.error}")
        return row

    async def _listed(self, story: MachineStory) -> dict[str, Any] | None:
        """Return the machine's row in the list, if a page has it."""
        for number in range(1, PAGES_MAX + 1):
            reply = await self.calls.get("/gpu/instances", pageSize=str(PAGE_SIZE), pageNum=str(number))
            rows = rows_of(reply, "instances") or []
            for row in rows:
                if text(row, "id") == story.cloud_id:
                    return row
            if number * PAGE_SIZE >= (whole(reply.body or {}, "total") or 0):
                break
        return None

    async def _go_on(self, story: MachineStory, rental_id: str, deadline: datetime) -> None:
        """Wait a little, renew the lease, and give up in time."""
        if self._now() > deadline:
            seen = story.sightings[-1].status if story.sightings else "nothing"
            raise CannotLook(f"it took too long; last seen: {seen}")
        now_s = self.calls.clock.monotonic()
        if now_s - self._renewed_s > self.plan.lease.total_seconds() / 3:
            await self.rentals.renew(rental_id, self.plan.lease)
            self._renewed_s = now_s
        since = story.sightings[-1].at if story.sightings else self._now()
        await self.calls.clock.sleep(min(PAUSE_MAX_S, (self._now() - since).total_seconds() / 20))

    def _now(self) -> datetime:
        return self.calls.clock.now()


def _known(cloud_id: str | None) -> str:
    assert cloud_id is not None
    return cloud_id


# Wait a little for a restarting server. The lease keeps the machine meanwhile.
SERVER_RETRIES = 3


class LiveContact:
    """Runs the live checks against Novita with the configured key."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._look: FreeLook | None = None
        self._removed = 0

    def heading(self) -> Mapping[str, Any]:
        return {
            "gpuherd": __version__,
            "at": self._clock.now().isoformat(timespec="seconds"),
            "cloud": self._settings.novita_api_base_url,
            # What a killed doctor left on the server.
            "removedLeftovers": self._removed,
        }

    def look(self, earlier_machine: Mapping[str, Any] | None) -> Sequence[LiveFinding]:
        self._look = asyncio.run(self._free(earlier_machine))
        return self._look.findings

    def quote(self) -> Quote:
        plan = self._plan()
        asyncio.run(self._check_server())
        minutes = int(plan.lease.total_seconds() // 60)
        return Quote(
            plan.usd_max,
            f"The paid checks rent one machine for some minutes, for at most {plan.price_max} USD an hour, "
            f"through the gpuherd server at {self._settings.server_url}. It is deleted at the end; if this "
            f"command is killed, its lease deletes it within {minutes} minutes.",
        )

    def rent(self, quote: Quote, tell: Callable[[str], None]) -> Rented:
        return asyncio.run(self._paid(tell))

    async def _free(self, earlier_machine: Mapping[str, Any] | None) -> FreeLook:
        async with self._calls() as calls:
            await self._remove_leftovers()
            found = await look(calls, self._clock.now(), self._settings.novita_rate_limit_per_minute)
            if earlier_machine is not None:
                found.findings.append(await look_at_bill(calls, earlier_machine))
            return found

    async def _remove_leftovers(self) -> None:
        # Without a server, nothing was rented.
        with contextlib.suppress(CannotLook):
            async with self._server() as rentals:
                self._removed = await rentals.remove_all()

    async def _check_server(self) -> None:
        async with self._server() as rentals:
            await rentals.check()

    async def _paid(self, tell: Callable[[str], None]) -> Rented:
        settle_s = self._settings.create_settle_s
        async with self._calls() as calls, self._server(SERVER_RETRIES) as rentals:
            checks = PaidChecks(calls, rentals, self._plan(), timedelta(seconds=2 * settle_s), tell)
            story = await checks.run()
            findings = judge_story(story, settle_s)
            if story.machine is not None:
                findings.append(await look_at_bill(calls, story.machine))
        return Rented(findings, story.machine, story.broke_off or None)

    def _plan(self) -> RentPlan:
        assert self._look is not None
        if self._look.template_id is None:
            raise CannotLook("the account shows no template that a machine could be rented with")
        return plan_of(self._look.offers, self._look.template_id)

    @contextlib.asynccontextmanager
    async def _server(self, retries: int = 0) -> AsyncIterator[ServerRentals]:
        try:
            address = server_address(self._settings)
        except (BadConfiguration, CannotStart) as problem:
            raise CannotLook(str(problem)) from None
        async with AsyncGpuherd(address, max_retries=retries) as herd:
            yield ServerRentals(herd)

    @contextlib.asynccontextmanager
    async def _calls(self) -> AsyncIterator[NovitaCalls]:
        settings = self._settings
        if settings.novita_api_key is None:
            advice = "put your key into NOVITA_API_KEY; on a server elsewhere, run this there"
            raise CannotLook(f"no NOVITA_API_KEY is set; {advice}", ExitCode.CONFIGURATION)
        exchange = Exchange(
            settings.novita_api_base_url,
            settings.novita_api_key,
            clock=self._clock,
        )
        try:
            yield NovitaCalls(exchange, self._clock, spacing_s(settings.novita_rate_limit_per_minute))
        finally:
            await exchange.close()
