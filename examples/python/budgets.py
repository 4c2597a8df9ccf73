"""Set how much a team may spend, and show how far each budget is used up.

GPUHERD_API_KEY=... python3 budgets.py team=nlp 200 [--period month] [--at-limit stop]
"""

from __future__ import annotations

import argparse
import sys

from gpuherd.client.client_errors import GpuherdError, NotFound
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.money_models import Budget

BAR = 20


def main() -> None:
    parser = argparse.ArgumentParser(description="Set a budget for a label, and show all budgets.")
    parser.add_argument("label", help="whose costs count, like team=nlp; also the name of the budget")
    parser.add_argument("amount", help="how many USD may be spent in a period")
    parser.add_argument("--period", default="month", choices=("day", "week", "month", "total"))
    parser.add_argument("--at-limit", default="block", choices=("warn", "block", "stop", "delete"))
    options = parser.parse_args()
    key, _, value = options.label.partition("=")
    terms = {"amount": options.amount, "period": options.period, "at_limit": options.at_limit}

    with Gpuherd() as herd:
        try:
            # Run it as often as you like: the name says which budget is meant.
            herd.budgets.set(options.label, **terms)
            print(f"changed {options.label}")
        except NotFound:
            herd.budgets.add(options.label, **terms, scope={"label": {key: value}}, warn_percent=[80])
            print(f"made {options.label}")
        for budget in herd.budgets.list():
            print(line_of(budget))


def line_of(it: Budget) -> str:
    filled = min(BAR, int(BAR * it.spent / it.amount))
    bar = "#" * filled + "." * (BAR - filled)
    line = f"[{bar}] {it.name}: ${it.spent:.4f} of ${it.amount} ({it.period}), {it.state}"
    if it.hourly_now and it.spent < it.amount:
        line += f"; lasts {(it.amount - it.spent) / it.hourly_now:.0f} h at ${it.hourly_now:.4f}/h"
    return line


if __name__ == "__main__":
    try:
        main()
    except GpuherdError as error:
        sys.exit(str(error))
