"""A webhook receiver on loopback that shows and verifies what arrives."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import typer
from aiohttp import web
from rich.text import Text

from gpuherd.clock import Clock
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.webhooks.signing import ID_HEADER, BadSignature, verify
from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.render.output import Output, as_json, safe

HOST = "127.0.0.1"
BODY_MAX_BYTES = 1024 * 1024
UNVERIFIED = "not verified: no secret was given"


@dataclass
class WebhookReceiver:
    """Prints each event as it comes: a line for people, a line of JSON for programs."""

    output: Output
    clock: Clock
    secret: Secret | None
    received: int = 0

    async def run(self, port: int) -> None:
        """Listen until somebody ends it."""
        app = web.Application(client_max_size=BODY_MAX_BYTES)
        app.router.add_post("/{path:.*}", self._receive)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, HOST, port).start()
            self._print_hints(runner.addresses[0][1])
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    def _print_hints(self, port: int) -> None:
        self.output.note(f"listening on http://{HOST}:{port}/ (Ctrl-C ends it)")
        self.output.note(
            "the server may send here only if GPUHERD_ALLOW_PRIVATE_TARGETS opens 127.0.0.1/32", "dim"
        )
        if self.secret is None:
            self.output.note("no secret: signatures are not verified", "yellow")

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        now = self.clock.now()
        problem = self._problem(dict(request.headers), body, now)
        self.received += 1
        event_id = request.headers.get(ID_HEADER, "")
        if self.output.for_people:
            self._show(event_id, body, problem)
        else:
            line = {
                "at": now.isoformat(),
                "id": event_id,
                "verified": None if problem == UNVERIFIED else not problem,
                "problem": problem or None,
                "event": _event(body),
            }
            # Flushed, so that the reader of a pipe sees it now.
            typer.echo(as_json(line, indent=None))
        # A receiver that takes what it cannot trust would hide the mistake from the sender.
        return web.Response(status=401 if problem not in ("", UNVERIFIED) else 204)

    def _problem(self, headers: dict[str, str], body: bytes, now: datetime) -> str:
        if self.secret is None:
            return UNVERIFIED
        try:
            verify(headers, body, self.secret, now)
        except BadSignature as error:
            return f"the signature is not valid: {error}"
        return ""

    def _show(self, event_id: str, body: bytes, problem: str) -> None:
        event = Details(_event(body) if isinstance(_event(body), dict) else {})
        data = Details(event.mapping("data"))
        facts = (data.text("name"), data.text("status"), event_id)
        line = Text()
        line.append(f"{safe(event.text('type') or 'not an event'):<26}", "bold")
        line.append("  ".join(safe(fact) for fact in facts if fact))
        verdict, style = (
            (problem, "yellow" if problem == UNVERIFIED else "red") if problem else ("valid", "green")
        )
        line.append(f"  {safe(verdict)}", style)
        self.output.show(line)


def _event(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
