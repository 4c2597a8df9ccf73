"""`/images/credentials`: a password goes to the cloud, and appears on no page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gpuherd.domain.cloud.template import CredentialOrder
from gpuherd.domain.secret import Secret
from tests.entrypoints.web.conftest import HOSTILE, Browser, hostile_parts, once_of
from tests.support.herd import Herd

SignedIn = Callable[[str], Awaitable[Browser]]
# Blanks around it are part of it.
CANARY = " canary of a password "
LOGIN = {"name": "team", "username": "robot", "password": CANARY}


def known(herd: Herd) -> dict[str, str]:
    return {it.name: it.id for it in herd.world.account.registry_auths.values()}


async def add(browser: Browser, **more: str) -> str:
    """Send the form and return the page that answers, or where it leads."""
    word = await once_of(browser, "/images")
    reply = await browser.send("/images/credentials", once=word, **{**LOGIN, **more})
    return reply.headers.get("location") or reply.text


async def test_a_login_is_passed_on_shown_without_its_password_and_deleted(
    admin: Browser, herd: Herd, tmp_path: Path
) -> None:
    assert await add(admin) == "/images?done=credential"
    auth_id = known(herd)["team"]
    assert herd.world.account.registry_auths[auth_id].password == CANARY
    pages = [await admin.text(it) for it in ("/images", "/instances/new", "/audit")]
    assert "robot" in pages[0] and auth_id in pages[0]
    assert not [it for it in pages if CANARY.strip() in it]
    assert not [
        it for it in tmp_path.rglob("*") if it.is_file() and CANARY.strip().encode() in it.read_bytes()
    ]
    gone = await admin.send(f"/images/credentials/{auth_id}/delete")
    assert (gone.headers["location"], "team" in known(herd)) == ("/images?done=credential-gone", False)
    assert (await admin.send(f"/images/credentials/{auth_id}/delete")).status_code == 303


async def test_a_double_click_adds_one_and_leads_to_the_same_page(admin: Browser, herd: Herd) -> None:
    word, before = await once_of(admin, "/images"), len(known(herd))
    replies = [await admin.send("/images/credentials", once=word, **LOGIN) for _ in range(2)]
    assert [it.headers.get("location") for it in replies] == ["/images?done=credential"] * 2
    assert len(herd.world.account.registry_auths) == before + 1


@pytest.mark.parametrize(
    "wrong",
    [{"name": ""}, {"username": "a\tb"}, {"password": f"{CANARY}\r\n{CANARY}"}, {"password": CANARY * 100}],
    ids=["name", "username", "lines", "long"],
)
async def test_a_password_never_comes_back_from_a_form_that_was_refused(
    admin: Browser, herd: Herd, wrong: dict[str, str]
) -> None:
    before = known(herd)
    page = await add(admin, **wrong)
    (field,) = wrong
    assert f'id="{field}-problem"' in page and "Type it again: it is not sent back." in page
    assert CANARY.strip() not in page
    assert known(herd) == before


async def test_nor_when_the_name_is_taken(admin: Browser, herd: Herd) -> None:
    await add(admin)
    page = await add(admin)
    assert "delete it, or choose another name" in page and 'value="robot"' in page
    assert CANARY.strip() not in page


async def test_a_credential_in_use_stays_and_the_page_says_why(admin: Browser, herd: Herd) -> None:
    await add(admin)
    auth_id = known(herd)["team"]
    mine = {"name": "mine", "imageUrl": "ghcr.io/team/trainer:1", "registryAuthId": auth_id}
    await admin.send("/images/templates", once=await once_of(admin, "/images"), **mine)
    reply = await admin.send(f"/images/credentials/{auth_id}/delete")
    assert (reply.status_code, "REGISTRY_AUTH_IN_USE" in reply.text) == (409, True)
    assert "team" in known(herd)


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_name_is_text(admin: Browser, herd: Herd, name: str) -> None:
    order = CredentialOrder(name, name, Secret("password"))
    await herd.plane.images.registry.credentials.create_credential(order)
    for path in ("/images", "/instances/new", "/images/templates/101"):
        assert hostile_parts(await admin.text(path)) == []


@pytest.mark.parametrize("scope", ["read", "write"])
async def test_who_is_no_admin_sees_names_and_changes_nothing(
    signed_in: SignedIn, admin: Browser, herd: Herd, scope: str
) -> None:
    await add(admin)
    before, browser = known(herd), await signed_in(scope)
    page = await browser.text("/images")
    assert "robot" in page and 'action="/images/credentials' not in page
    for path in ("", f"/{before['team']}/delete"):
        assert (await browser.send(f"/images/credentials{path}", **LOGIN)).status_code == 403
    assert known(herd) == before
