"""Rent a GPU, wait until it can be used, print how to reach it, and stop it. Needs nothing but Python 3.9.

GPUHERD_API_KEY=... python3 rent_and_wait.py [--webhook-url URL]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import uuid
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

URL = os.environ.get("GPUHERD_URL", "http://127.0.0.1:8080").rstrip("/")
KEY = os.environ.get("GPUHERD_API_KEY", "")
# The server holds a question back for so long; our own patience with one answer must be longer.
LONG_POLL_S = 30
PATIENCE_S = 30 * 60


def call(method: str, path: str, body: dict | None = None, **headers: str) -> dict:
    """Ask gpuherd once and return its answer; what it refuses is an HTTPError with a problem document."""
    request = Request(URL + path, method=method, headers={"Authorization": f"Bearer {KEY}", **headers})
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    with urlopen(request, timeout=LONG_POLL_S + 15) as reply:
        return json.load(reply)


def create(wish: dict) -> dict:
    """Rent. The key makes it safe to ask again when an answer got lost: it is still one instance."""
    key = str(uuid.uuid4())
    for tries_left in (2, 1, 0):
        try:
            return call("POST", "/api/instances", wish, **{"Idempotency-Key": key})
        except HTTPError:
            raise
        except (URLError, OSError):
            if not tries_left:
                raise
            time.sleep(1)
    raise AssertionError("unreachable")


def wait(instance_id: str, what: str) -> dict:
    """Return the instance when it is `what` (ready, exited, deleted), or when it will not become so."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        instance = call("GET", f"/api/instances/{instance_id}?wait={what}&timeout={LONG_POLL_S}")
        print(f"{instance['status']:<16} {instance['statusReason'] or ''}", flush=True)
        done = instance["usable"] if what == "ready" else instance["status"] == what
        hopeless = instance["status"] in ("failed", "exited", "deleted")
        if done or hopeless or time.monotonic() > deadline:
            return instance


def main() -> int:
    parser = argparse.ArgumentParser(description="Rent a GPU, wait, show how to reach it, stop it.")
    parser.add_argument("--name", default="example-python")
    parser.add_argument("--gpu", default="RTX 4090 24GB")
    parser.add_argument("--template", default="101")
    parser.add_argument("--max-price", type=float, default=1.0, help="USD an hour for the whole instance")
    parser.add_argument("--webhook-url")
    options = parser.parse_args()
    wish = {
        "name": options.name,
        "productName": options.gpu,
        "templateId": options.template,
        "maxHourlyPrice": options.max_price,
    }
    if options.webhook_url:
        wish["webhookUrl"] = options.webhook_url

    instance = create(wish)
    print(f"accepted as {instance['id']}", flush=True)
    instance = wait(instance["id"], "ready")
    if not instance["usable"]:
        print(f"not usable: {instance['statusReason']}", file=sys.stderr)
        return 1
    print(f"ready: {instance['productName']} in {instance['region']} for ${instance['hourlyPrice']}/h")
    for way, address in instance["connectionDetails"].items():
        if address:
            print(f"  {way}: {address}")
    for mapping in instance["portMappings"]:
        print(f"  port {mapping['port']}: {mapping['endpoint']}")

    # Here your work would be done.

    call("POST", f"/api/instances/{instance['id']}/stop")
    return 0 if wait(instance["id"], "exited")["status"] == "exited" else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HTTPError as refused:
        sys.exit(f"gpuherd says {refused.code}: {refused.read().decode()}")
    except (URLError, OSError) as trouble:
        sys.exit(f"cannot reach gpuherd at {URL}: {trouble}")
