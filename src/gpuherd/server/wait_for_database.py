"""A PostgreSQL that is started together with us may come up later: wait a minute for it, and say so.

Any answer ends the wait, and so does the end of the minute: the start itself says what is wrong then.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from gpuherd.clock import Clock
from gpuherd.settings import Settings

WAIT_S = 60.0
PAUSE_S = 0.5
SAY_AGAIN_S = 10.0
# Of one try: a host that swallows everything must not take up the whole wait.
KNOCK_S = 5.0

# In the words of the driver, which has no other sign for it.
NO_TLS = "rejected SSL"

# Returns why nobody answers, or None if somebody does.
Knock = Callable[[], Awaitable[str | None]]


async def await_database(settings: Settings, clock: Clock) -> None:
    """Wait for the configured database, should it be a PostgreSQL that is not there yet."""
    if settings.sqlite_path is None:
        from gpuherd.bootstrap.configuration import without_password  # noqa: PLC0415  a start must be quick

        url = settings.database_url
        await wait_for(without_password(url), partial(knock_at, url), clock, _say)


async def wait_for(where: str, knock: Knock, clock: Clock, say: Callable[[str], None]) -> None:
    """Knock again and again until there is an answer, or no time left."""
    end_s = clock.monotonic() + WAIT_S
    say_s = clock.monotonic()
    while (reason := await knock()) is not None:
        now_s = clock.monotonic()
        if now_s >= end_s:
            return
        if now_s >= say_s:
            say(f"gpuherd waits for {where}, for {end_s - now_s:.0f} s at most: {reason}")
            say_s = now_s + SAY_AGAIN_S
        await clock.sleep(min(PAUSE_S, end_s - now_s))


async def knock_at(url: str) -> str | None:
    """Return why no PostgreSQL answers at this address; None if one does, be it with a refusal."""
    # Its driver takes a while to load, and few need it.
    import asyncpg  # type: ignore[import-untyped]  # noqa: PLC0415

    from gpuherd.adapters.queue.postgres_url import asyncpg_arguments  # noqa: PLC0415

    try:
        connection = await asyncpg.connect(**{**asyncpg_arguments(url), "timeout": KNOCK_S})
    except (asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError) as error:
        # It is just starting or ending, or a proxy before it has nobody to pass us on to.
        return str(error)
    except TimeoutError:
        return f"no answer within {KNOCK_S:.0f} s"
    except OSError as error:
        return (error.strerror or str(error)) if _is_away(error) else None
    except (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError):
        return None
    connection.terminate()
    return None


def _is_away(error: OSError) -> bool:
    """Tell nobody there from somebody who does not want us, as one that speaks no TLS, or a closed socket."""
    if type(error) in (OSError, ConnectionError):
        # Of several addresses, or of a connection that was closed before a word was said.
        return NO_TLS not in str(error)
    # A host may have no name yet, and a socket no file.
    return isinstance(
        error, ConnectionRefusedError | ConnectionResetError | FileNotFoundError | socket.gaierror
    )


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
