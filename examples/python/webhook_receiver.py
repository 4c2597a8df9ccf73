"""Receive gpuherd's webhooks, believe only those with a good signature, and print them.

Needs nothing but Python 3.9:

    WEBHOOK_SECRET=whsec_... python3 webhook_receiver.py [--port 9000]

gpuherd delivers at least once: an event may come twice (same `webhook-id`) or late (lower `data.sequence`).
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import hmac
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE_S = 300
BODY_MAX_BYTES = 1024 * 1024


class BadSignature(Exception):
    """Not from somebody who knows the secret, or not from now."""


def key_of(secret: str) -> bytes:
    """Return the bytes to sign with: after `whsec_` comes base64, anything else is taken as it is."""
    if secret.startswith("whsec_"):
        encoded = secret[len("whsec_") :]
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4))
    return secret.encode()


def verify(secret: str, headers: Mapping[str, str] | Message, body: bytes, now: float) -> None:
    """Return if the message is genuine and fresh; `body` must be the very bytes that came."""
    message_id = headers.get("webhook-id") or ""
    timestamp = headers.get("webhook-timestamp") or ""
    given = headers.get("webhook-signature") or ""
    if not message_id or not re.fullmatch("[0-9]{1,12}", timestamp):
        raise BadSignature("a header is missing or malformed")
    # An old message with a good signature may have been recorded and sent again by somebody else.
    if abs(now - int(timestamp)) > TOLERANCE_S:
        raise BadSignature("the timestamp is not from now")
    signed = f"{message_id}.{timestamp}.".encode("utf-8", "replace") + body
    digest = hmac.new(key_of(secret), signed, hashlib.sha256).digest()
    expected = b"v1," + base64.b64encode(digest)
    # There is one signature for each secret in use. compare_digest takes the same time for every wrong one.
    matches = [hmac.compare_digest(expected, one.encode("utf-8", "replace")) for one in given.split(" ")]
    if not any(matches):
        raise BadSignature("no signature fits")


class Receiver(BaseHTTPRequestHandler):
    """Answers 204 to what it believes and 401 to what it does not."""

    secret = ""
    # Somebody who opens a connection and says nothing must not keep a thread for ever.
    timeout = 10

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length") or ""
        if not re.fullmatch("[0-9]{1,9}", length) or int(length) > BODY_MAX_BYTES:
            self.answer(413)
            return
        body = self.rfile.read(int(length))
        try:
            verify(self.secret, self.headers, body, time.time())
        except BadSignature as bad:
            print(f"refused: {bad}", flush=True)
            self.answer(401)
            return
        event = json.loads(body)
        data = event["data"]
        # As JSON, so that no name can do anything to a terminal or a log.
        told = {
            "type": event["type"],
            "name": data["name"],
            "status": data["status"],
            "sequence": data["sequence"],
        }
        print(json.dumps(told), flush=True)
        self.answer(204)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        # What is left of a body that was not read would be taken for the next request.
        self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing about requests; events are what matters."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Receive and verify gpuherd's webhooks.")
    parser.add_argument("--port", type=int, default=9000, help="0 takes any free port")
    port = parser.parse_args().port
    Receiver.secret = os.environ.get("WEBHOOK_SECRET", "")
    if not Receiver.secret:
        sys.exit("set WEBHOOK_SECRET to the secret of your gpuherd server")
    server = ThreadingHTTPServer(("127.0.0.1", port), Receiver)
    print(f"listening on http://127.0.0.1:{server.server_port}/", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
