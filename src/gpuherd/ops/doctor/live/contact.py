"""The live checks put together: settings, an exchange with Novita, and the server to rent through."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from gpuherd import __version__
from gpuherd.adapters.novita.novita_call import Exchange
from gpuherd.bootstrap.key_files import CannotStart
from gpuherd.client.async_client import AsyncGpuherd
from gpuherd.client.client_errors import BadConfiguration
from gpuherd.entrypoints.cli.cli_errors import ExitCode
from gpuherd.ops.connection import server_address
from gpuherd.ops.doctor.live.bill import look_at_bill
from gpuherd.ops.doctor.live.calls import NovitaCalls, spacing_s
from gpuherd.ops.doctor.live.look import FreeLook, look
from gpuherd.ops.doctor.live.machine import judge_story
from gpuherd.ops.doctor.live.rent import PaidChecks
from gpuherd.ops.doctor.live.rentals import RentPlan, ServerRentals, plan_of
from gpuherd.ops.doctor.results import CannotLook, LiveFinding, Quote, Rented
from gpuherd.ports.clock_port import Clock
from gpuherd.settings import Settings

# A server that is being restarted is waited for a little; the lease holds meanwhile.
SERVER_RETRIES = 3


class LiveContact:
    """Looks at Novita with the configured key."""

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
            # What a doctor that was killed had left on the server.
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
        # Without a server there is nothing that was rented through it.
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
