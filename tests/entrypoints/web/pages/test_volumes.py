"""`/volumes`: each is made once, whatever is clicked, and shown with its price and region."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gpuherd.domain.cloud.network_volume import VolumeOrder
from gpuherd.domain.instance.launch_spec import VolumeMount
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from tests.entrypoints.web.conftest import HOSTILE, Browser, hostile_parts, once_of
from tests.support.herd import Herd

SignedIn = Callable[[str], Awaitable[Browser]]
DATA = {"name": "data", "region": "US-CA-06", "sizeGb": "100"}


def there(herd: Herd) -> list[str]:
    return [it.name for it in herd.world.volumes.listed()]


async def test_a_volume_is_made_shown_with_price_and_region_and_deleted(
    signed_in: SignedIn, herd: Herd
) -> None:
    browser = await signed_in("write")
    assert "No volumes" in await browser.text("/volumes")
    reply = await browser.send("/volumes", once=await once_of(browser, "/volumes"), **DATA)
    assert reply.headers["location"] == "/volumes?done=volume"
    page = await browser.text(reply.headers["location"])
    (volume,) = herd.world.volumes.listed()
    for words in ("The volume is made.", "US-CA-06", "100 GB", "$0.00834/h", volume.id):
        assert words in page
    assert f'href="/instances/new?mount.{volume.id}=/data"' in page
    gone = await browser.send(f"/volumes/{volume.id}/delete")
    assert gone.headers["location"] == "/volumes?done=volume-gone"
    assert there(herd) == []
    # A second click has nothing left to do.
    assert (await browser.send(f"/volumes/{volume.id}/delete")).status_code == 303


async def test_a_double_click_makes_one_and_leads_to_the_same_page(admin: Browser, herd: Herd) -> None:
    word = await once_of(admin, "/volumes")
    replies = [await admin.send("/volumes", once=word, **DATA) for _ in range(2)]
    assert [it.headers.get("location") for it in replies] == ["/volumes?done=volume"] * 2
    assert there(herd) == ["data"]
    other = await admin.send("/volumes", once=word, **{**DATA, "name": "other"})
    assert (other.status_code, there(herd)) == (422, ["data"])


async def test_two_at_once_make_one_and_the_second_is_told_that_it_is_under_way(
    admin: Browser, herd: Herd, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()
    create = plane.services.volumes.create_volume

    async def slowly(order: VolumeOrder, send_by_s: float) -> str:
        asked.set()
        await go_on.wait()
        return await create(order, send_by_s)

    monkeypatch.setattr(plane.services.volumes, "create_volume", slowly)
    word = await once_of(admin, "/volumes")
    first = asyncio.create_task(admin.send("/volumes", once=word, **DATA))
    await asked.wait()
    second = await admin.send("/volumes", once=word, **DATA)
    assert (second.status_code, "sent already and is under way" in second.text) == (409, True)
    go_on.set()
    assert (await first).headers["location"] == "/volumes?done=volume"
    assert there(herd) == ["data"]


async def test_mistakes_are_beside_their_fields_and_nothing_is_made(admin: Browser, herd: Herd) -> None:
    wrong = {"name": "", "region": "MARS-01", "sizeGb": "5"}
    reply = await admin.send("/volumes", once=await once_of(admin, "/volumes"), **wrong)
    assert (reply.status_code, "Nothing was made: 3 fields need another look." in reply.text) == (400, True)
    for field in ("name", "region", "sizeGb"):
        assert f'id="{field}-problem"' in reply.text
    assert 'value="5"' in reply.text
    reply = await admin.send(
        "/volumes", once=await once_of(admin, "/volumes"), **{**DATA, "region": "MARS-01"}
    )
    assert (reply.status_code, 'id="region-problem"' in reply.text) == (400, True)
    assert (await admin.send("/volumes", **DATA)).status_code == 400, "without the word of a form"
    assert there(herd) == []


async def test_a_name_that_is_taken_is_said_on_the_form(admin: Browser, herd: Herd) -> None:
    herd.world.volumes.create("data", "us-ca-6", 50, herd.world.now())
    reply = await admin.send("/volumes", once=await once_of(admin, "/volumes"), **DATA)
    assert (reply.status_code, "choose another one" in reply.text) == (409, True)
    assert 'value="data"' in reply.text
    assert there(herd) == ["data"]


async def test_a_create_whose_answer_is_lost_is_not_called_nothing(admin: Browser, herd: Herd) -> None:
    lost = Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1, endpoints=(ApiEndpoint.NETWORK_STORAGE_CREATE,))
    herd.world.faults.add(lost)
    reply = await admin.send("/volumes", once=await once_of(admin, "/volumes"), **DATA)
    assert (reply.status_code, "It is not known yet: no answer came" in reply.text) == (503, True)
    assert "Nothing was made" not in reply.text


async def test_a_volume_that_a_machine_has_stays_and_the_page_says_why(admin: Browser, herd: Herd) -> None:
    volume = herd.world.volumes.create("data", "us-ca-6", 50, herd.world.now())
    await herd.settle(
        await herd.launch("alpha", volumes=(VolumeMount(volume.id, "/data"),), regions=("US-CA-06",))
    )
    reply = await admin.send(f"/volumes/{volume.id}/delete")
    assert (reply.status_code, "VOLUME_IN_USE" in reply.text) == (409, True)
    assert there(herd) == ["data"]


async def test_a_cloud_that_does_not_answer_is_not_an_empty_list(admin: Browser, herd: Herd) -> None:
    herd.world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.NETWORK_STORAGES,)))
    page = await admin.text("/volumes")
    assert "The cloud cannot be asked which volumes there are" in page
    assert "No volumes" not in page


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_name_is_text(admin: Browser, herd: Herd, name: str) -> None:
    herd.world.volumes.create(name, "us-ca-6", 50, herd.world.now())
    for path in ("/volumes", "/instances/new", "/money"):
        assert hostile_parts(await admin.text(path)) == []


async def test_who_may_only_look_sees_no_form_and_is_refused(signed_in: SignedIn, herd: Herd) -> None:
    volume = herd.world.volumes.create("data", "us-ca-6", 50, herd.world.now())
    browser = await signed_in("read")
    page = await browser.text("/volumes")
    assert "data" in page and 'action="/volumes' not in page
    for path in ("/volumes", f"/volumes/{volume.id}/delete"):
        assert (await browser.send(path, **DATA)).status_code == 403
    assert there(herd) == ["data"]
