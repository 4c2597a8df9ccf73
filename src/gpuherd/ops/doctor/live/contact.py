"""The live checks put together: settings, an exchange with Novita, and the server to rent through."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from gpuherd import __version__
from gpuherd.adapters.novita.exchange import Exchange
from gpuherd.adapters.novita.transport import REPLY_BYTES_MAX
from gpuherd.clock import Clock
from gpuherd.entrypoints.cli.commands.local.first_contact import CannotLook, LiveFinding, Quote, Rented
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode
from gpuherd.ops.doctor.live.calls import NovitaCalls, spacing_s
from gpuherd.ops.doctor.live.look import FreeLook, look
from gpuherd.settings import Settings


class LiveContact:
    """Looks at Novita with the configured key."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._look: FreeLook | None = None

    def heading(self) -> Mapping[str, Any]:
        return {
            "gpuherd": __version__,
            "at": self._clock.now().isoformat(timespec="seconds"),
            "cloud": self._settings.novita_api_base_url,
        }

    def look(self, earlier_machine: Mapping[str, Any] | None) -> Sequence[LiveFinding]:
        self._look = asyncio.run(self._free())
        return self._look.findings

    def quote(self) -> Quote:
        raise CannotLook("this version has none")

    def rent(self, quote: Quote, tell: Callable[[str], None]) -> Rented:
        raise CannotLook("this version has none")

    async def _free(self) -> FreeLook:
        async with self._calls() as calls:
            return await look(calls, self._clock.now(), self._settings.novita_rate_limit_per_minute)

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
            max_bytes=REPLY_BYTES_MAX,
        )
        try:
            yield NovitaCalls(exchange, self._clock, spacing_s(settings.novita_rate_limit_per_minute))
        finally:
            await exchange.close()
