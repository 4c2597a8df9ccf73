"""`gpuherd webhooks listen`: receive webhooks on this machine, verify them, and print them."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import click
from rich.text import Text

from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_signing import ID_HEADER, BadSignature, Signer, verify
from gpuherd.entrypoints.cli.cli_errors import ExitCode
from gpuherd.entrypoints.cli.cli_output import Output, Row, as_json, safe
from gpuherd.entrypoints.cli.command_runner import local_command

LOOPBACK = "127.0.0.1"
BODY_BYTES_MAX = 1024 * 1024
READ_TIMEOUT_S = 30.0
UNVERIFIED = "not verified: no secret was given"


@local_command(
    "listen",
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=8099,
        show_default=True,
        help="0 takes any free port.",
    ),
    click.option(
        "--secret",
        envvar="WEBHOOK_SECRET",
        metavar="whsec_…",
        help="Verifies what arrives. Better in the environment than here.",
    ),
)
def listen(output: Output, port: int, secret: str | None) -> None:
    """Receive webhooks on this machine, verify them, and print them until Ctrl-C."""
    receiver = WebhookReceiver(output, _usable(secret))
    try:
        receiver.run(port)
    except OSError as error:
        output.note(f"port {port} cannot be used: {safe(error.strerror)}", "red")
        raise click.exceptions.Exit(int(ExitCode.FAILED)) from error
    except KeyboardInterrupt:
        output.note(f"{receiver.received} received")


def _usable(secret: str | None) -> Secret | None:
    if not secret:
        return None
    try:
        Signer([Secret(secret)])
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--secret") from error
    return Secret(secret)


@dataclass
class WebhookReceiver:
    """Prints each event as it comes: a line for people, a line of JSON for programs."""

    output: Output
    secret: Secret | None
    received: int = 0
    # Two events at once must not mix in one line.
    _printing: threading.Lock = field(default_factory=threading.Lock)

    def run(self, port: int) -> None:
        """Listen until Ctrl-C."""
        with _Server((LOOPBACK, port), _Handler) as server:
            server.receiver = self
            self.output.note(f"listening on http://{LOOPBACK}:{server.server_port}/ (Ctrl-C ends it)")
            allowed = "the server may send here only if GPUHERD_ALLOW_PRIVATE_TARGETS opens 127.0.0.1/32"
            self.output.note(allowed, "dim")
            if self.secret is None:
                self.output.note("no secret: signatures are not verified", "yellow")
            server.serve_forever()

    def receive(self, headers: dict[str, str], body: bytes) -> int:
        """Print what has come, and return the HTTP status of the answer."""
        now = self.output.clock.now()
        problem = self._problem(headers, body, now)
        event_id = next((value for name, value in headers.items() if name.lower() == ID_HEADER.lower()), "")
        with self._printing:
            self.received += 1
            self._print(event_id, body, problem, now)
        # A receiver that accepts invalid messages would hide the mistake from the sender.
        return 401 if problem not in ("", UNVERIFIED) else 204

    def _problem(self, headers: dict[str, str], body: bytes, now: datetime) -> str:
        if self.secret is None:
            return UNVERIFIED
        try:
            verify(headers, body, self.secret, now)
        except BadSignature as error:
            return f"the signature is not valid: {error}"
        return ""

    def _print(self, event_id: str, body: bytes, problem: str, now: datetime) -> None:
        try:
            event = json.loads(body)
        except ValueError:
            event = None
        if self.output.for_people:
            self._show(event_id, event if isinstance(event, dict) else {}, problem)
            return
        line = {
            "at": now.isoformat(),
            "id": event_id,
            "verified": None if problem == UNVERIFIED else not problem,
            "problem": problem or None,
            "event": event,
        }
        # click flushes, so that the reader of a pipe sees the line now.
        click.echo(as_json(line, indent=None))

    def _show(self, event_id: str, event: Row, problem: str) -> None:
        data = event.get("data")
        facts = data if isinstance(data, dict) else {}
        line = Text()
        line.append(f"{safe(event.get('type') or 'not an event'):<26}", "bold")
        words = (facts.get("name"), facts.get("status"), event_id)
        line.append("  ".join(safe(word) for word in words if word))
        style = "green" if not problem else "yellow" if problem == UNVERIFIED else "red"
        line.append(f"  {safe(problem or 'valid')}", style)
        self.output.show(line)


class _Server(ThreadingHTTPServer):
    receiver: WebhookReceiver


class _Handler(BaseHTTPRequestHandler):
    """Reads requests. Any program on this machine may connect."""

    server: _Server

    protocol_version = "HTTP/1.1"
    timeout = READ_TIMEOUT_S

    def do_POST(self) -> None:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal():
            self._answer(411)
        elif int(size) > BODY_BYTES_MAX:
            self._answer(413)
        else:
            self._answer(self.server.receiver.receive(dict(self.headers.items()), self.rfile.read(int(size))))

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the receiver prints what comes."""

    def _answer(self, status: int) -> None:
        # After an unread body, the next bytes on the connection are no request.
        self.close_connection = self.close_connection or status in (411, 413)
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", "0")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
