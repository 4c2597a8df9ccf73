"""The pull of an image on the page of an instance that boots."""

from __future__ import annotations

from datetime import timedelta

from tests.entrypoints.web.conftest import Browser
from tests.support.herd import Herd


async def test_the_page_names_the_log_while_it_boots_and_a_session_may_read_it(
    admin: Browser, herd: Herd
) -> None:
    it = await herd.launch()
    await herd.run_for(timedelta(seconds=12))
    page, log = f"/instances/{it.id}", f"/instances/{it.id}/log"
    assert f'data-log="{log}"' in await admin.text(page)
    reply = await admin.open(log)
    assert (reply.status_code, reply.text) == (200, "the program is up\nstep 1\n")
    assert reply.headers["content-type"].startswith("text/plain")
    assert herd.logs.asked[-1].endswith("/system")
    await herd.settle(it)
    assert "data-log" not in await admin.text(page)
