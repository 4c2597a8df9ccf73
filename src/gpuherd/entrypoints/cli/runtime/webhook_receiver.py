"""A webhook receiver on loopback that shows and verifies what arrives."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import typer
from rich.text import Text

from gpuherd.client.client_connection import Clock
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_signing import ID_HEADER, BadSignature, verify
from gpuherd.entrypoints.cli.render.output import Output, as_json, safe

HOST = "127.0.0.1"
BODY_MAX_BYTES = 1024 * 1024
READ_TIMEOUT_S = 30.0
UNVERIFIED = "not verified: no secret was given"


@dataclass
class WebhookReceiver:
    """Prints each event as it comes: a line for people, a line of JSON for programs."""

    output: Output
    clock: Clock
    secret: Secret | None
    received: int = 0
    # Two events at once must not write into each other's line.
    _printing: threading.Lock = field(default_factory=threading.Lock)

    def run(self, port: int) -> None:
        """Listen until somebody ends it."""
        with _Server((HOST, port), _Handler) as server:
            server.receiver = self
            self._print_hints(server.server_port)
            server.serve_forever()

    def receive(self, headers: dict[str, str], body: bytes) -> int:
        """Print what has come, and return the status to answer with."""
        now = self.clock.now()
        problem = self._problem(headers, body, now)
        event_id = next((it for name, it in headers.items() if name.lower() == ID_HEADER.lower()), "")
        with self._printing:
            self.received += 1
            self._print(event_id, body, problem, now)
        # A receiver that takes what it cannot trust would hide the mistake from the sender.
        return 401 if problem not in ("", UNVERIFIED) else 204

    def _print_hints(self, port: int) -> None:
        self.output.note(f"listening on http://{HOST}:{port}/ (Ctrl-C ends it)")
        self.output.note(
            "the server may send here only if GPUHERD_ALLOW_PRIVATE_TARGETS opens 127.0.0.1/32", "dim"
        )
        if self.secret is None:
            self.output.note("no secret: signatures are not verified", "yellow")

    def _print(self, event_id: str, body: bytes, problem: str, now: datetime) -> None:
        if self.output.for_people:
            self._show(event_id, body, problem)
            return
        line = {
            "at": now.isoformat(),
            "id": event_id,
            "verified": None if problem == UNVERIFIED else not problem,
            "problem": problem or None,
            "event": _event(body),
        }
        # Flushed, so that the reader of a pipe sees it now.
        typer.echo(as_json(line, indent=None))

    def _problem(self, headers: dict[str, str], body: bytes, now: datetime) -> str:
        if self.secret is None:
            return UNVERIFIED
        try:
            verify(headers, body, self.secret, now)
        except BadSignature as error:
            return f"the signature is not valid: {error}"
        return ""

    def _show(self, event_id: str, body: bytes, problem: str) -> None:
        event = _mapping(_event(body))
        data = _mapping(event.get("data"))
        facts = (data.get("name"), data.get("status"), event_id)
        line = Text()
        line.append(f"{safe(event.get('type') or 'not an event'):<26}", "bold")
        line.append("  ".join(safe(fact) for fact in facts if fact))
        verdict, style = (
            (problem, "yellow" if problem == UNVERIFIED else "red") if problem else ("valid", "green")
        )
        line.append(f"  {safe(verdict)}", style)
        self.output.show(line)


class _Server(ThreadingHTTPServer):
    """Has a receiver."""

    receiver: WebhookReceiver


class _Handler(BaseHTTPRequestHandler):
    """Reads requests; who connects may be anybody on this machine."""

    server: _Server

    protocol_version = "HTTP/1.1"
    timeout = READ_TIMEOUT_S

    def do_POST(self) -> None:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal():
            self._answer(411)
        elif int(size) > BODY_MAX_BYTES:
            self._answer(413)
        else:
            self._answer(self.server.receiver.receive(dict(self.headers.items()), self.rfile.read(int(size))))

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: what was received is printed."""

    def _answer(self, status: int) -> None:
        # After a body that was not read, what follows on the connection is no request.
        self.close_connection = self.close_connection or status in (411, 413)
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", "0")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _event(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
