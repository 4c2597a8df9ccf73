"""Tell people in Slack, Discord, ntfy or by mail what happens, and see at once whether it arrives.

GPUHERD_API_KEY=... python3 notify.py slack https://hooks.slack.com/services/T000/B000/XXXX [--label '#gpus']
"""

from __future__ import annotations

import argparse
import sys

from gpuherd.client.client_errors import GpuherdError
from gpuherd.client.sync_client import Gpuherd


def main() -> None:
    parser = argparse.ArgumentParser(description="Add an endpoint for people, and test it.")
    parser.add_argument("kind", choices=("slack", "discord", "ntfy", "email"))
    parser.add_argument("address", help="what the service gave you; for mail mailto:you@example.com")
    parser.add_argument("--label", help="tells it from others: its address is never shown again")
    options = parser.parse_args()

    with Gpuherd() as herd:
        made = herd.webhooks.endpoints.add(options.address, kind=options.kind, label=options.label)
        it = made.endpoint
        print(f"added {it.id}: {it.kind} at {it.url}, {len(it.events or ())} kinds of events")
        tried = herd.webhooks.test(endpoint=it.id)
        if not tried.accepted:
            herd.webhooks.endpoints.remove(it)
            sys.exit(f"it did not arrive, so it is removed again: {tried.error}")
        print(f"the test arrived ({tried.status})")


if __name__ == "__main__":
    try:
        main()
    except GpuherdError as error:
        sys.exit(str(error))
