"""`/secrets`: names and nothing but names; each key has its own, an admin shares."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import pytest

from gpuherd.domain.api_key import Caller, Scope
from gpuherd.domain.secret import Secret
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.usecases.access.manage_secrets import put_secret, read_secrets
from tests.entrypoints.web.conftest import Browser
from tests.support.herd import Herd
from tests.support.keys import make_key

SignedIn = Callable[[str], Awaitable[Browser]]
# Blanks around it are part of it.
CANARY = " canary of a secret "
ADMIN = Caller("admin", Scope.ADMIN)


async def kept(plane: Plane, caller: Caller = ADMIN) -> dict[str, bool]:
    return {it.name: it.shared for it in await read_secrets(plane.services, caller)}


async def test_a_secret_is_set_changed_listed_by_name_and_removed(
    admin: Browser, plane: Plane, herd: Herd
) -> None:
    assert "No secrets" in await admin.text("/secrets")
    for value in ("first", CANARY):
        reply = await admin.send("/secrets", name="hf", value=value)
        assert reply.headers["location"] == "/secrets?done=secret"
    (secret,) = await read_secrets(plane.services, ADMIN)
    assert plane.services.sealer.unseal(secret.sealed, secret.about).reveal() == CANARY
    pages = [await admin.text(it) for it in ("/secrets", "/instances/new", "/audit")]
    assert "hf" in pages[0] and not [it for it in pages if CANARY.strip() in it]
    assert (await admin.send("/secrets/hf/remove")).headers["location"] == "/secrets?done=secret-gone"
    assert await kept(plane) == {}
    assert (await admin.send("/secrets/hf/remove")).status_code == 303


@pytest.mark.parametrize("wrong", [{"name": "<b>"}, {"name": ""}, {"value": CANARY * 300}, {"value": ""}])
async def test_a_value_never_comes_back_from_a_form_that_was_refused(
    admin: Browser, plane: Plane, wrong: dict[str, str]
) -> None:
    reply = await admin.send("/secrets", **{"name": "hf", "value": CANARY, **wrong})
    (field,) = wrong
    assert (reply.status_code, f'id="{field}-problem"' in reply.text) == (400, True)
    assert "Type it again: it is not sent back." in reply.text
    assert CANARY.strip() not in reply.text and "<b>" not in reply.text
    assert await kept(plane) == {}


async def test_both_mistakes_are_told_at_once(admin: Browser) -> None:
    reply = await admin.send("/secrets", name=".", value="")
    assert 'id="name-problem"' in reply.text and 'id="value-problem"' in reply.text


async def test_an_admin_shares_and_takes_back_what_is_shared_and_that_alone(
    admin: Browser, plane: Plane
) -> None:
    await admin.send("/secrets", name="hf", value="x", shared="yes")
    await admin.send("/secrets", name="hf", value="y")
    assert [it.shared for it in await read_secrets(plane.services, ADMIN)] == [False, True]
    page = await admin.text("/secrets")
    assert "every key" in page and "this key" in page
    assert page.count('name="shared" value="yes"') == 2, "the one to remove it, and the one to set it"
    await admin.send("/secrets/hf/remove", shared="yes")
    assert await kept(plane) == {"hf": False}


async def test_a_key_sees_its_own_and_what_is_shared_and_shares_nothing_itself(
    signed_in: SignedIn, plane: Plane
) -> None:
    await put_secret(plane.services, "everybodys", Secret("x"), ADMIN, shared=True)
    await put_secret(plane.services, "admins", Secret("x"), ADMIN)
    browser = await signed_in("write")
    await browser.send("/secrets", name="mine", value="x")
    page = await browser.text("/secrets")
    assert "everybodys" in page and "mine" in page and "admins" not in page
    assert re.findall(r'action="(/secrets/[^"]+)"', page) == ["/secrets/mine/remove"]
    assert 'name="shared"' not in page
    for path in ("/secrets", "/secrets/everybodys/remove"):
        reply = await browser.send(path, name="new", value="x", shared="yes")
        assert reply.status_code == 403
    await browser.send("/secrets/admins/remove")
    assert await kept(plane) == {"everybodys": True, "admins": False}


async def test_who_may_only_look_sees_no_form_and_is_refused(signed_out: Browser, plane: Plane) -> None:
    made = await make_key(plane, "read")
    await signed_out.sign_in(made.secret.reveal())
    await put_secret(plane.services, "everybodys", Secret("x"), ADMIN, shared=True)
    page = await signed_out.text("/secrets")
    assert "everybodys" in page and 'action="/secrets' not in page
    for path in ("/secrets", "/secrets/everybodys/remove"):
        assert (await signed_out.send(path, name="a", value="b")).status_code == 403
    assert await kept(plane) == {"everybodys": True}
