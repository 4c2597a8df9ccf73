"""The paid checks: one machine is rented, watched, stopped, started and removed, one step after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gpuherd.adapters.novita import novita_json
from gpuherd.adapters.novita.novita_json import text, whole
from gpuherd.adapters.novita.paged_list import PAGE_SIZE
from gpuherd.ops.doctor.live.calls import NovitaCalls
from gpuherd.ops.doctor.live.catalogue import rows_of, unread
from gpuherd.ops.doctor.live.look import read_metrics
from gpuherd.ops.doctor.live.rentals import Rentals, RentalState, RentPlan
from gpuherd.ops.doctor.live.story import MachineStory, Sighting
from gpuherd.ops.doctor.results import CannotLook

Tell = Callable[[str], None]

# Nothing in it could be rented: there is no such product, and no such image.
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
# A step that takes long is looked at less often.
PAUSE_MAX_S = 5.0


@dataclass
class PaidChecks:
    """Rents through the server, and looks at Novita itself."""

    calls: NovitaCalls
    rentals: Rentals
    plan: RentPlan
    # How late a machine may be listed before that is given up.
    list_limit: timedelta
    tell: Tell
    _renewed_s: float = field(default=float("-inf"))

    async def run(self) -> MachineStory:
        """Return what was seen, however far it got; what was rented is removed before."""
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
        """Wait for the server, which looks less often: before it knows, it refuses what comes next."""
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
        """GET the machine, and note its status."""
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
        """Return the machine's row in the list, if some page has it."""
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
        """Wait a little, keep the lease, and give up in time."""
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
