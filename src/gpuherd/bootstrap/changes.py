"""The ear for other replicas: on PostgreSQL, what they change is heard here at once."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial

from gpuherd.adapters.sql.database import Database
from gpuherd.clock import Clock
from gpuherd.settings import Settings
from gpuherd.usecases.change_hub import ChangeHub


def listen_to_replicas(
    settings: Settings, database: Database, hub: ChangeHub, clock: Clock
) -> Callable[[], Awaitable[None]]:
    """Begin to listen; return how to end it. On a file of our own there is nobody to hear."""
    if database.is_sqlite:
        return _nothing
    # Its driver takes a while to load, and few need it.
    import asyncpg  # type: ignore[import-untyped]  # noqa: PLC0415

    from gpuherd.adapters.queue.postgres_bounds import bounded  # noqa: PLC0415
    from gpuherd.adapters.queue.postgres_url import asyncpg_arguments  # noqa: PLC0415
    from gpuherd.adapters.sql.change_listener import ChangeListener  # noqa: PLC0415

    listener = ChangeListener(
        partial(asyncpg.connect, **bounded(asyncpg_arguments(settings.database_url))),
        database.sender,
        hub.changed,
        hub.everything_changed,
        clock,
        random.SystemRandom(),
    )
    listener.start()
    return listener.stop


async def _nothing() -> None:
    """Nobody listens, so nobody ends."""
