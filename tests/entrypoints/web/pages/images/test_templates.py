"""`/images` and `/images/templates/…`: what can run, made and changed by an admin only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from gpuherd.domain.cloud.template import TemplateDraft
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.simulated_catalogue import TEAM_REGISTRY
from tests.entrypoints.web.conftest import HOSTILE, Browser, hostile_parts, once_of
from tests.support.herd import Herd

SignedIn = Callable[[str], Awaitable[Browser]]
CANARY = "canary-of-a-template"
MINE = {
    "name": "mine",
    "imageUrl": "ghcr.io/team/trainer:1",
    "command": f"serve --token {CANARY}",
    "ports": "8000/http, 22/tcp",
    "envs": f"TOKEN={CANARY}\nLEVEL=2",
    "rootfsSize": "80",
    "minCudaVersion": "12.4",
    "registryAuthId": TEAM_REGISTRY.id,
}


async def make(browser: Browser, herd: Herd, **more: str) -> str:
    known = set(herd.world.account.templates)
    word = await once_of(browser, "/images")
    reply = await browser.send("/images/templates", once=word, **{**MINE, **more})
    assert reply.headers["location"] == "/images?done=template", reply.text
    (template_id,) = set(herd.world.account.templates) - known
    return template_id


def as_shown(**typed: str) -> dict[str, str]:
    """Return what a browser sends of the form to change a template: what was shown, and what is typed."""
    shown = {name: MINE[name] for name in ("name", "imageUrl", "ports", "registryAuthId")}
    return {**shown, **{f"was.{name}": value for name, value in shown.items()}, **typed}


async def test_a_template_is_made_listed_shown_and_deleted(admin: Browser, herd: Herd) -> None:
    template_id = await make(admin, herd)
    made = herd.world.account.templates[template_id]
    assert (made.name, made.image, made.disk_gb) == ("mine", "ghcr.io/team/trainer:1", 80)
    assert made.envs == (("TOKEN", CANARY), ("LEVEL", "2"))
    page, one = (
        await admin.text("/images?done=template"),
        await admin.text(f"/images/templates/{template_id}"),
    )
    for words in ("mine", "ghcr.io/team/trainer:1", "8000/http, 22/tcp", "TOKEN, LEVEL"):
        assert words in page and words in one
    assert "The template is made." in page
    assert f'href="/instances/new?templateId={template_id}"' in page
    assert CANARY not in page + one
    gone = await admin.send(f"/images/templates/{template_id}/delete")
    assert gone.headers["location"] == "/images?done=template-gone"
    assert template_id not in herd.world.account.templates
    assert (await admin.send(f"/images/templates/{template_id}/delete")).status_code == 303
    assert (await admin.open(f"/images/templates/{template_id}")).status_code == 404


async def test_an_account_without_templates_is_told_how_to_make_one(admin: Browser, herd: Herd) -> None:
    herd.world.account.templates.clear()
    page = await admin.text("/images")
    assert "No templates of your own" in page and "gpuherd templates create" in page


async def test_a_double_click_makes_one_and_leads_to_the_same_page(admin: Browser, herd: Herd) -> None:
    word, known = await once_of(admin, "/images"), len(herd.world.account.templates)
    replies = [await admin.send("/images/templates", once=word, **MINE) for _ in range(2)]
    assert [it.headers.get("location") for it in replies] == ["/images?done=template"] * 2
    assert len(herd.world.account.templates) == known + 1


async def test_mistakes_are_beside_their_fields_and_values_do_not_come_back(
    admin: Browser, herd: Herd
) -> None:
    known = dict(herd.world.account.templates)
    wrong = {
        **MINE,
        "imageUrl": "https://ghcr.io/x",
        "ports": "1/udp",
        "rootfsSize": "1",
        "envs": f"1={CANARY}",
    }
    wrong["command"] = "serve"
    reply = await admin.send("/images/templates", once=await once_of(admin, "/images"), **wrong)
    assert (reply.status_code, "Nothing was made: 4 fields need another look." in reply.text) == (400, True)
    for field in ("imageUrl", "ports", "rootfsSize", "envs"):
        assert reply.text.count(f'id="{field}-problem"') == 1
    # The other form on the page has a field of that name, which is none of this one's.
    assert reply.text.count('value="mine"') == 1
    assert "Type them again: their values are not sent back." in reply.text
    assert CANARY not in reply.text
    assert herd.world.account.templates == known


async def test_what_is_left_as_it_is_stays(admin: Browser, herd: Herd) -> None:
    template_id = await make(admin, herd)
    path, before = f"/images/templates/{template_id}", herd.world.account.templates[template_id]
    page = await admin.text(path)
    for name, value in as_shown().items():
        assert name.endswith("registryAuthId") or (f'name="{name}"' in page and f'value="{value}"' in page)
    reply = await admin.send(path, **as_shown(imageUrl="ghcr.io/team/trainer:2"))
    assert reply.headers["location"] == f"{path}?done=template-changed"
    after = herd.world.account.templates[template_id]
    assert after.image == "ghcr.io/team/trainer:2"
    assert (after.name, after.ports, after.envs) == (before.name, before.ports, before.envs)
    assert (after.start_command, after.disk_gb) == (before.start_command, before.disk_gb)
    unchanged = await admin.send(path, **as_shown())
    assert (unchanged.status_code, "nothing is different" in unchanged.text) == (400, True)


async def test_what_another_has_changed_meanwhile_is_not_taken_back(
    admin: Browser, herd: Herd, plane: Plane
) -> None:
    template_id = await make(admin, herd)
    await plane.images.templates.editor.change_template(template_id, TemplateDraft(name="theirs"))
    await admin.send(f"/images/templates/{template_id}", **as_shown(ports=""))
    after = herd.world.account.templates[template_id]
    assert (after.name, after.ports) == ("theirs", ())


async def test_variables_are_replaced_or_removed_as_a_whole(admin: Browser, herd: Herd) -> None:
    template_id = await make(admin, herd)
    path = f"/images/templates/{template_id}"
    await admin.send(path, **as_shown(envs="A=1"))
    assert herd.world.account.templates[template_id].envs == (("A", "1"),)
    await admin.send(path, **as_shown(noEnvs="yes"))
    assert herd.world.account.templates[template_id].envs == ()


async def test_a_change_that_makes_no_sense_is_shown_on_the_form_with_what_was_typed(
    admin: Browser, herd: Herd
) -> None:
    template_id = await make(admin, herd)
    typed = as_shown(name="", imageUrl="no image", envs=f"A={CANARY}")
    reply = await admin.send(f"/images/templates/{template_id}", **typed)
    assert reply.status_code == 400
    assert 'id="name-problem"' in reply.text and 'id="imageUrl-problem"' in reply.text
    assert 'value="no image"' in reply.text and CANARY not in reply.text
    missing = await admin.send(f"/images/templates/{template_id}", **as_shown(registryAuthId="nobodys"))
    assert (missing.status_code, "Nothing was changed" in missing.text) == (404, True)


async def test_what_belongs_to_novita_has_no_form_and_is_not_changed(admin: Browser, herd: Herd) -> None:
    page = await admin.text("/images/templates/101")
    assert "Novita" in page and 'action="/images' not in page
    assert (await admin.send("/images/templates/101", name="x")).status_code == 409
    assert (await admin.send("/images/templates/101/delete")).status_code == 409


async def test_a_cloud_that_does_not_answer_is_not_an_empty_list(admin: Browser, herd: Herd) -> None:
    ends = (ApiEndpoint.TEMPLATES, ApiEndpoint.REGISTRY_AUTHS)
    herd.world.faults.add(Fault(FaultKind.OUTAGE, endpoints=ends))
    page = await admin.text("/images")
    assert page.count("The cloud cannot be asked which") == 2
    assert "No templates" not in page and "No credentials" not in page


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_name_is_text(admin: Browser, herd: Herd, name: str) -> None:
    template_id = await make(admin, herd)
    await herd.plane.images.templates.editor.change_template(template_id, TemplateDraft(name=name))
    herd.plane.catalogue.forget_templates()
    for path in ("/images", f"/images/templates/{template_id}", "/instances/new"):
        assert hostile_parts(await admin.text(path)) == []


@pytest.mark.parametrize("scope", ["read", "write"])
async def test_who_is_no_admin_looks_and_changes_nothing(
    signed_in: SignedIn, admin: Browser, herd: Herd, scope: str
) -> None:
    template_id = await make(admin, herd)
    known = dict(herd.world.account.templates)
    browser = await signed_in(scope)
    for path in ("/images", f"/images/templates/{template_id}"):
        page = await browser.text(path)
        assert "mine" in page and 'action="/images/templates' not in page
        assert ("/instances/new?templateId=" in page) == (scope == "write")
    for path in ("", f"/{template_id}", f"/{template_id}/delete"):
        assert (await browser.send(f"/images/templates{path}", **MINE)).status_code == 403
    assert herd.world.account.templates == known
