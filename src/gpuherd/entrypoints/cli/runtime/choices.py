"""What there is to choose from, asked of the server, shortly and quietly: for Tab, and for a beginner."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from gpuherd.client.sync_client import Gpuherd
from gpuherd.entrypoints.cli.render.instances import usd_an_hour
from gpuherd.entrypoints.cli.runtime.find import ID_PREFIX
from gpuherd.entrypoints.cli.runtime.session import CliContext


@dataclass(frozen=True)
class Choice:
    """One thing that can be meant: the words for it, the best first, and what to say about it."""

    words: tuple[str, ...]
    about: str


Lookup = Callable[[Gpuherd], list[Choice]]


def fetch_choices(cli: CliContext, lookup: Lookup, timeout_s: float) -> list[Choice]:
    """Return the choices; none if the server cannot be asked, and not a word about it."""
    try:
        with contextlib.redirect_stderr(io.StringIO()), cli.client(timeout_s) as herd:
            return lookup(herd)
    # Whatever it is, the next command that needs the server says it better.
    except (Exception, SystemExit):
        return []


def instances(herd: Gpuherd) -> list[Choice]:
    """By name if only one has it, and by id."""
    found = [it for it in herd.instances.list().page().entries if it.status != "deleted"]
    names = [it.name for it in found]
    return [Choice((it.name, it.id) if names.count(it.name) == 1 else (it.id,), it.status) for it in found]


def templates(herd: Gpuherd) -> list[Choice]:
    """Those that work, the oldest first: they are the ones that everybody has."""
    found = sorted(herd.templates(), key=lambda it: (len(it.id), it.id))
    return [Choice((it.id,), it.name) for it in found if not it.problem]


def gpus(herd: Gpuherd) -> list[Choice]:
    """Those that can be had now, with the price of one, the cheapest first."""
    cheapest: dict[str, Decimal] = {}
    for it in herd.products():
        # One name may be sold in several builds.
        if it.available and it.gpu_hourly_price is not None:
            price = cheapest.get(it.product_name, it.gpu_hourly_price)
            cheapest[it.product_name] = min(price, it.gpu_hourly_price)
    found = sorted(cheapest.items(), key=lambda pair: pair[1])
    return [Choice((name,), f"from {usd_an_hour(price)}") for name, price in found]


def regions(herd: Gpuherd) -> list[Choice]:
    return [Choice((it.code,), it.label or "") for it in herd.regions()]


def fitting(choices: Sequence[Choice], beginning: str) -> list[tuple[str, str]]:
    """Return a word for each choice that goes on like this, with what to say about it."""
    wanted = [(it, _best(it, beginning)) for it in choices]
    return [(word, it.about) for it, word in wanted if word.startswith(beginning)]


def _best(choice: Choice, beginning: str) -> str:
    # Input that begins like an id is completed to an id.
    return choice.words[-1] if beginning.startswith(ID_PREFIX) else choice.words[0]
