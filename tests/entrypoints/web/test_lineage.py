"""Instances that take over from one another, on the page of each of them."""

from __future__ import annotations

from datetime import timedelta

from tests.entrypoints.web.conftest import Browser
from tests.support.herd import Herd


async def test_the_page_shows_the_whole_lineage(admin: Browser, herd: Herd) -> None:
    old = await herd.settle(await herd.launch())
    assert "Lineage" not in await admin.text(f"/instances/{old.id}")
    chain = (await herd.replace(old.id)).instance.chain
    assert chain is not None and chain.heir is not None
    await herd.run_for(timedelta(minutes=3))
    text = await admin.text(f"/instances/{chain.heir.id}")
    assert "Lineage" in text
    # A page makes the first letter of a sentence a capital one, which no id has.
    assert f'>link 1, <a href="/instances/{old.id}"' in text
    assert "asked for" in text


async def test_what_can_be_used_can_be_replaced_from_its_page(admin: Browser, herd: Herd) -> None:
    old = await herd.settle(await herd.launch())
    assert f"/instances/{old.id}/replace" in await admin.text(f"/instances/{old.id}")
    assert (await admin.send(f"/instances/{old.id}/replace")).status_code == 303
    assert f"/instances/{old.id}/replace" not in await admin.text(f"/instances/{old.id}"), "it is under way"
    chain = (await herd.get(old.id)).chain
    assert chain is not None and chain.heir is not None
    assert await admin.send(f"/instances/{old.id}/stop")
    await herd.run_for(timedelta(minutes=3))
    assert f"/instances/{old.id}/replace" not in await admin.text(f"/instances/{old.id}")
