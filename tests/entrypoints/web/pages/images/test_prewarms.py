"""`/images/prewarms`: a task is ordered once, shown with its state in words, and makes room when deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from gpuherd.domain.cloud.template import (
    Prewarm,
    PrewarmOrder,
    PrewarmProduct,
    PrewarmState,
)
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.entrypoints.web.image_pages import prewarm_row
from gpuherd.simulator.faults import ApiEndpoint, Call, Fault, FaultKind
from gpuherd.simulator.simulated_account import PrewarmRequest
from gpuherd.simulator.simulated_catalogue import TEAM_REGISTRY
from tests.entrypoints.web.conftest import HOSTILE, Browser, hostile_parts, once_of
from tests.support.herd import Herd

SignedIn = Callable[[str], Awaitable[Browser]]
IMAGE = "docker.io/team/trainer:1"
PRIVATE = "registry.example.com/team/trainer:1.4"
TASK = {"imageUrl": IMAGE, "region": "US-CA-06"}
DONE_S = 40
UNKNOWN = "The cloud cannot be asked which prewarm tasks there are"


async def order(browser: Browser, **more: str) -> httpx.Response:
    """Send the form as it is on a page that was just opened."""
    return await browser.send("/images/prewarms", once=await once_of(browser, "/images"), **{**TASK, **more})


def there(herd: Herd) -> list[str]:
    return [it.image_url for it in herd.world.prewarms.listed()]


def ordered(herd: Herd, image: str = IMAGE, note: str = "") -> str:
    """Let a task be there that was ordered elsewhere."""
    request = PrewarmRequest(image, "us-ca-6", note=note)
    return herd.world.prewarm(request, Call(ApiEndpoint.PREWARM_CREATE))


async def test_an_image_is_ordered_followed_until_it_is_there_and_deleted(
    signed_in: SignedIn, herd: Herd
) -> None:
    browser = await signed_in("write")
    empty = await browser.text("/images")
    assert "Nothing is prewarmed" in empty and "paid for while it pulls its image" in empty
    assert "0 of 5 tasks are used" in empty and "An image may have 100 GB" in empty
    reply = await order(browser, products="RTX 4090 24GB, 4090.16c62g", note="for the night")
    assert reply.headers["location"] == "/images?done=prewarm"
    page = await browser.text(reply.headers["location"])
    assert "The order is with the cloud" in page and "1 of 5 tasks are used" in page
    # Words beside the shape, and each product by its name once.
    assert "</svg>pending</span>" in page and "for RTX 4090 24GB</span>" in page
    for words in (IMAGE, "US-CA-06", "Note: for the night"):
        assert words in page
    await herd.clock.sleep(DONE_S)
    page = await browser.text("/images")
    (task,) = herd.world.prewarms.listed()
    assert '<span class="status good">' in page and "</svg>succeeded</span>" in page
    assert f"{task.size_bytes / 1e9:.1f} GB" in page and "took " in page
    gone = await browser.send(f"/images/prewarms/{task.id}/delete")
    assert gone.headers["location"] == "/images?done=prewarm-gone"
    assert "there is room for another" in await browser.text(gone.headers["location"])
    assert there(herd) == []
    # A second click has nothing left to do.
    assert (await browser.send(f"/images/prewarms/{task.id}/delete")).status_code == 303


async def test_a_private_image_fails_with_its_reason_and_succeeds_with_a_credential(
    admin: Browser, herd: Herd
) -> None:
    await order(admin, imageUrl=PRIVATE)
    await herd.clock.sleep(DONE_S)
    page = await admin.text("/images")
    assert "</svg>failed</span>" in page and "pull access denied" in page
    reply = await order(admin, imageUrl=PRIVATE, registryAuthId=TEAM_REGISTRY.id)
    assert reply.headers["location"] == "/images?done=prewarm"
    assert herd.world.prewarms.listed()[0].auth_id == TEAM_REGISTRY.id
    await herd.clock.sleep(DONE_S)
    page = await admin.text("/images")
    assert "</svg>succeeded</span>" in page and TEAM_REGISTRY.password not in page


async def test_a_double_click_orders_one_and_leads_to_the_same_page(admin: Browser, herd: Herd) -> None:
    word = await once_of(admin, "/images")
    replies = [await admin.send("/images/prewarms", once=word, **TASK) for _ in range(2)]
    assert [it.headers.get("location") for it in replies] == ["/images?done=prewarm"] * 2
    other = await admin.send("/images/prewarms", once=word, **{**TASK, "note": "other"})
    assert (other.status_code, there(herd)) == (422, [IMAGE])


async def test_two_at_once_order_one_and_the_second_is_told_that_it_is_under_way(
    admin: Browser, herd: Herd, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()
    create = plane.prewarms.create.prewarms.create_prewarm

    async def slowly(wanted: PrewarmOrder, send_by_s: float) -> str:
        asked.set()
        await go_on.wait()
        return await create(wanted, send_by_s)

    monkeypatch.setattr(plane.prewarms.create.prewarms, "create_prewarm", slowly)
    word = await once_of(admin, "/images")
    first = asyncio.create_task(admin.send("/images/prewarms", once=word, **TASK))
    await asked.wait()
    second = await admin.send("/images/prewarms", once=word, **TASK)
    assert (second.status_code, "sent already and is under way" in second.text) == (409, True)
    go_on.set()
    assert (await first).headers["location"] == "/images?done=prewarm"
    assert there(herd) == [IMAGE]


async def test_mistakes_are_beside_their_fields_and_what_was_typed_stays(admin: Browser, herd: Herd) -> None:
    typed = {"imageUrl": "https://a", "region": "", "note": "n" * 201, "products": "x" * 300}
    reply = await order(admin, **typed)
    assert (reply.status_code, "Nothing was ordered: 4 fields need another look." in reply.text) == (
        400,
        True,
    )
    for field in typed:
        assert reply.text.count(f'id="{field}-problem"') == 1
    assert 'value="https://a"' in reply.text
    reply = await order(admin, region="MARS-01", products="abacus, RTX 4090 24GB")
    assert (reply.status_code, reply.text.count('-problem">')) == (400, 4)
    assert "nothing called &#39;abacus&#39; is sold there" in reply.text
    assert 'value="abacus, RTX 4090 24GB"' in reply.text
    assert (await admin.send("/images/prewarms", **TASK)).status_code == 400, "without the word of a form"
    assert there(herd) == [] and herd.world.calls["prewarm_create"] == 0


async def test_what_there_is_already_is_said_on_the_form(admin: Browser, herd: Herd) -> None:
    ordered(herd)
    reply = await order(admin)
    assert (reply.status_code, "Nothing was ordered: there is a prewarm task for" in reply.text) == (
        409,
        True,
    )
    assert f'value="{IMAGE}"' in reply.text and 'value="US-CA-06" selected' in reply.text
    assert there(herd) == [IMAGE]


async def test_a_quota_that_is_used_up_is_said_before_and_after(admin: Browser, herd: Herd) -> None:
    for n in range(4):
        ordered(herd, f"a:{n}")
    assert "Delete one to make room" not in await admin.text("/images")
    await order(admin)
    page = await admin.text("/images")
    assert "5 of 5 tasks are used" in page and "Delete one to make room" in page
    refused = await order(admin, imageUrl="b:1")
    assert (refused.status_code, "may have 5; delete one first" in refused.text) == (409, True)
    assert len(there(herd)) == 5


async def test_a_lost_answer_is_not_called_nothing_and_the_same_form_again_finds_the_task(
    admin: Browser, herd: Herd
) -> None:
    lost = Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1, endpoints=(ApiEndpoint.PREWARM_CREATE,))
    herd.world.faults.add(lost)
    reply = await order(admin)
    assert (reply.status_code, "It is not known yet: no answer came" in reply.text) == (503, True)
    assert "Nothing was ordered" not in reply.text
    ordered(herd)
    assert (await order(admin)).headers["location"] == "/images?done=prewarm"
    assert there(herd) == [IMAGE]


@pytest.mark.parametrize("endpoint", [ApiEndpoint.PREWARMS, ApiEndpoint.PREWARM_QUOTA])
async def test_a_cloud_that_does_not_answer_is_not_an_empty_list(
    admin: Browser, herd: Herd, endpoint: ApiEndpoint
) -> None:
    ordered(herd)
    herd.world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(endpoint,)))
    page = await admin.text("/images")
    assert UNKNOWN in page and "Nothing is prewarmed" not in page and "tasks are used" not in page
    # The rest of the page does not go with it.
    assert "Your templates" in page and TEAM_REGISTRY.name in page


async def test_a_region_is_typed_where_the_cloud_does_not_say_which_there_are(
    admin: Browser, herd: Herd
) -> None:
    herd.world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.CLUSTERS,)))
    assert '<input name="region" required' in await admin.text("/images")


@pytest.mark.parametrize("words", HOSTILE)
async def test_hostile_words_are_text(admin: Browser, herd: Herd, words: str) -> None:
    ordered(herd, words, note=words)
    assert hostile_parts(await admin.text("/images")) == []
    refused = await order(admin, imageUrl=words, note=words, products=words, region=words)
    assert refused.status_code == 400
    # A field shows what was typed into it as it was, and nowhere else is it more than text.
    assert [it for it in hostile_parts(refused.text) if it != "\u202e"] == []


async def test_who_may_only_look_sees_the_tasks_without_forms_and_is_refused(
    signed_in: SignedIn, herd: Herd
) -> None:
    task = ordered(herd)
    browser = await signed_in("read")
    page = await browser.text("/images")
    assert IMAGE in page and 'action="/images' not in page
    for path in ("/images/prewarms", f"/images/prewarms/{task}/delete"):
        assert (await browser.send(path, **TASK)).status_code == 403
    assert there(herd) == [IMAGE]


async def test_a_form_of_another_session_orders_and_deletes_nothing(admin: Browser, herd: Herd) -> None:
    task = ordered(herd)
    said = {**TASK, "imageUrl": "b:1", "once": await once_of(admin, "/images"), "form_token": "0" * 64}
    for path in ("/images/prewarms", f"/images/prewarms/{task}/delete"):
        assert (await admin.client.post(path, data=said)).status_code == 403
    assert there(herd) == [IMAGE]


def test_each_state_has_its_word_and_a_time_that_makes_no_sense_is_left_out() -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    task = Prewarm("1", IMAGE, "US-CA-06", "us-ca-6", PrewarmState.UNKNOWN, created_at=began)
    looks = {it: prewarm_row(replace(task, state=it)).look for it in PrewarmState}
    assert list(looks.values()) == ["moving", "moving", "good", "bad", "idle"]
    assert (prewarm_row(task).state, prewarm_row(task).took, prewarm_row(task).size) == ("unknown", "", "")
    for seconds, words in ((90, "1 min 30 s"), (-1, "")):
        assert prewarm_row(replace(task, completed_at=began + timedelta(seconds=seconds))).took == words
    nameless = replace(
        task, products=(PrewarmProduct("p1", ""), PrewarmProduct("p2", "A"), PrewarmProduct("p3", "A"))
    )
    assert prewarm_row(nameless).products == ("p1", "A")
