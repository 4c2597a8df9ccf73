"""The end of an instance on the pages: when it comes, another one, and the word that it is in use."""

from __future__ import annotations

from datetime import timedelta

from gpuherd.domain.instance.lease import (
    Idleness,
    Lease,
    Silence,
    Terms,
)
from gpuherd.ports.instance_port import InstanceQuery
from gpuherd.simulator.simulated_bill import Use
from tests.entrypoints.web.conftest import Browser
from tests.entrypoints.web.test_actions import WISH, once
from tests.support.herd import Herd


async def test_a_form_may_agree_on_an_end(admin: Browser, herd: Herd) -> None:
    await admin.send("/instances/new", once=await once(admin), **WISH, leaseHours="8")
    (it,) = (await herd.instances.page(InstanceQuery())).instances
    assert it.terms.lease == Lease(seconds=8 * 3600)
    assert "Its lease of 8 h" in await admin.text(f"/instances/{it.id}")


async def test_a_wrong_end_is_shown_beside_its_field(admin: Browser) -> None:
    reply = await admin.send("/instances/new", once=await once(admin), **WISH, leaseHours="99999")
    assert reply.status_code == 400
    assert 'id="leaseHours-problem"' in reply.text


async def test_what_has_no_end_says_what_a_day_costs_and_can_be_given_one(admin: Browser, herd: Herd) -> None:
    it = await herd.settle(await herd.launch())
    page = f"/instances/{it.id}"
    assert "a day until somebody stops it" in await admin.text(page)
    assert (await admin.send(f"{page}/lease", hours="4")).status_code == 303
    term = (await herd.get(it.id)).lease_term
    assert term is not None
    assert term.ends_at == herd.clock.now() + timedelta(hours=4)
    assert "It is stopped <time" in await admin.text(page)
    assert (await admin.send(f"{page}/lease", hours="")).status_code == 303
    assert (await herd.get(it.id)).lease_term is None


async def test_the_end_of_a_stopped_one_is_no_stop(admin: Browser, herd: Herd) -> None:
    it = await herd.settle(await herd.launch(disk_gb=260))
    page = f"/instances/{it.id}"
    await herd.stop(it.id)
    await herd.run_for(timedelta(minutes=5))
    assert "its disk costs $1.00 a day until somebody deletes it" in await admin.text(page)
    await admin.send(f"{page}/lease", hours="4")
    assert "It is stopped already; its lease ends <time" in await admin.text(page)


async def test_an_end_that_the_page_does_not_offer_is_refused(admin: Browser, herd: Herd) -> None:
    it = await herd.settle(await herd.launch())
    assert (await admin.send(f"/instances/{it.id}/lease", hours="1e9")).status_code == 400
    assert (await herd.get(it.id)).lease_term is None


async def test_keep_says_that_it_is_in_use(admin: Browser, herd: Herd) -> None:
    it = await herd.settle(await herd.launch(terms=Terms(silence=Silence(3600))))
    assert "unless somebody says that it is in use" in await admin.text(f"/instances/{it.id}")
    await herd.run_for(timedelta(minutes=30))
    assert (await admin.send(f"/instances/{it.id}/keep")).status_code == 303
    assert (await herd.get(it.id)).used_at == herd.clock.now()


async def test_an_idle_one_shows_when_it_ends_and_can_be_kept(admin: Browser, herd: Herd) -> None:
    it = await herd.settle(await herd.launch(terms=Terms(idle=Idleness(1800))))
    page = f"/instances/{it.id}"
    assert "It ends after 30 min 00 s in which no GPU reached 5 %" in await admin.text(page)
    herd.world.uses.set(it.cloud_id or "", Use(herd.world.now(), 0.0, 0.0))
    await herd.run_for(timedelta(minutes=28))
    text = await admin.text(page)
    assert "unless somebody says that it is in use" in text
    assert "Keep</button>" in text
    assert (await admin.send(f"{page}/keep")).status_code == 303
    await herd.run_for(timedelta(minutes=20))
    assert (await herd.get(it.id)).usable


async def test_after_the_end_the_page_says_so_and_offers_no_other(admin: Browser, herd: Herd) -> None:
    it = await herd.settle(await herd.launch(terms=Terms(lease=Lease(seconds=60))))
    await herd.run_for(timedelta(minutes=5))
    page = await admin.text(f"/instances/{it.id}")
    assert "Its lease has ended" in page
    assert "Set the end" not in page
