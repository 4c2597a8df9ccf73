"""What there is to choose from, asked of the server, shortly and quietly: for Tab, and for a beginner."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from gpuherd.domain.instance.instance import ID_PREFIX, Status
from gpuherd.entrypoints.cli.render.details import Details, usd_an_hour
from gpuherd.entrypoints.cli.runtime.connection import ApiClient, connected
from gpuherd.entrypoints.cli.runtime.session import CliContext

LIMIT = 100


@dataclass(frozen=True)
class Choice:
    """One thing that can be meant: the words for it, the best first, and what to say about it."""

    words: tuple[str, ...]
    about: str


Lookup = Callable[[ApiClient], Awaitable[list[Choice]]]


def fetch_choices(cli: CliContext, lookup: Lookup, timeout_s: float) -> list[Choice]:
    """Return the choices; none if the server cannot be asked, and not a word about it."""

    async def within() -> list[Choice]:
        async with asyncio.timeout(timeout_s), connected(cli.connect()) as api:
            return await lookup(api)

    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return asyncio.run(within())
    # Whatever it is, the next command that needs the server says it better.
    except (Exception, SystemExit):
        return []


async def instances(api: ApiClient) -> list[Choice]:
    """By name if only one has it, and by id."""
    found = [it for it in await _rows(api, "instances", f"?limit={LIMIT}") if it.status in _NOT_DELETED]
    names = [it.text("name") for it in found]
    return [
        Choice((it.text("name"), it.id) if names.count(it.text("name")) == 1 else (it.id,), it.status)
        for it in found
    ]


async def templates(api: ApiClient) -> list[Choice]:
    """Those that work, the oldest first: they are the ones that everybody has."""
    found = sorted(await _rows(api, "templates"), key=lambda it: (len(it.id), it.id))
    return [Choice((it.id,), it.text("name")) for it in found if not it.text("problem")]


async def gpus(api: ApiClient) -> list[Choice]:
    """Those that can be had now, with the price of one, the cheapest first."""
    found = [it for it in await _rows(api, "products") if it.raw.get("available") is True]
    found.sort(key=lambda it: (len(_price(it).partition(".")[0]), _price(it)), reverse=True)
    # One name may be sold in several builds; the last one written down is the cheapest.
    cheapest = {it.text("productName"): _price(it) for it in found}
    return [Choice((name,), f"from {price}") for name, price in reversed(cheapest.items())]


async def regions(api: ApiClient) -> list[Choice]:
    return [Choice((it.text("code"),), it.text("label")) for it in await _rows(api, "regions")]


def fitting(choices: Sequence[Choice], beginning: str) -> list[tuple[str, str]]:
    """Return a word for each choice that goes on like this, with what to say about it."""
    wanted = [(it, _best(it, beginning)) for it in choices]
    return [(word, it.about) for it, word in wanted if word.startswith(beginning)]


def _best(choice: Choice, beginning: str) -> str:
    # Input that begins like an id is completed to an id.
    return choice.words[-1] if beginning.startswith(ID_PREFIX) else choice.words[0]


def _price(product: Details) -> str:
    return usd_an_hour(product.raw.get("gpuHourlyPrice"))


async def _rows(api: ApiClient, what: str, query: str = "") -> list[Details]:
    rows = (await api.get(f"/api/{what}{query}")).body.get(what)
    return [Details(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


_NOT_DELETED = frozenset(Status) - {Status.DELETED}
