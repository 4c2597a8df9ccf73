"""Say what was spent this month by a label, what still costs money, and what could be done about it.

GPUHERD_API_KEY=... python3 spending.py [--label team]
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from gpuherd.client.client_errors import Forbidden, GpuherdError
from gpuherd.client.sync_client import Gpuherd


def main() -> None:
    parser = argparse.ArgumentParser(description="What was spent this month, and what still costs money.")
    parser.add_argument("--label", default="team", help="divide it by the values of this label")
    options = parser.parse_args()
    first = datetime.now(UTC).date().replace(day=1)

    with Gpuherd() as herd:
        costs = herd.costs.get(first, group_by=f"label:{options.label}")
        print(f"since {first}: ${costs.total:.4f}, give or take ${costs.uncertainty:.4f}")
        for group in costs.groups:
            print(f"  {group.value or '(none)'}: ${group.total:.4f}, {group.instances} instances")
        leftovers = herd.costs.leftovers()
        print(f"goes on: ${leftovers.hourly_total:.4f}/h")
        for it in leftovers.items:
            print(f"  {it.kind} {it.name}: ${it.hourly_price:.4f}/h; {it.suggestion}")
        try:
            balance = herd.costs.balance()
        except Forbidden:
            # The account's balance is for admins.
            return
        hours = "for ever" if balance.runway_hours is None else f"{balance.runway_hours:.0f} h"
        print(f"balance: ${balance.available:.2f}, which lasts {hours}")


if __name__ == "__main__":
    try:
        main()
    except GpuherdError as error:
        sys.exit(str(error))
