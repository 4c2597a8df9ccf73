"""A PostgreSQL that is started together with us may come up later: wait a minute for it, and say so.

Any answer ends the wait, and so does the end of the minute: the start itself says what is wrong then."""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from gpuherd.bootstrap.setting_values import redact_password
from gpuherd.clock import Clock
from gpuherd.settings import Settings

WAIT_LIMIT_S = 60.0
RETRY_INTERVAL_S = 0.5
REPORT_INTERVAL_S = 10.0
# Of one try: a host that swallows everything must not take up the whole wait.
CONNECT_TIMEOUT_S = 5.0

# In the words of the driver, which has no other sign for it.
TLS_REJECTED = "rejected SSL"

# Returns why nobody answers, or None if somebody does.
ConnectionCheck = Callable[[], Awaitable[str | None]]


async def wait_for_database(settings: Settings, clock: Clock) -> None:
    """Wait for the configured database, should it be a PostgreSQL that is not there yet."""
    if settings.sqlite_path is None:
        url = settings.database_url
        await poll_until_reachable(redact_password(url), partial(connection_problem, url), clock, _print_line)


async def poll_until_reachable(
    where: str, check_connection: ConnectionCheck, clock: Clock, report: Callable[[str], None]
) -> None:
    """Knock again and again until there is an answer, or no time left."""
    end_s = clock.monotonic() + WAIT_LIMIT_S
    next_report_s = clock.monotonic()
    while (reason := await check_connection()) is not None:
        now_s = clock.monotonic()
        if now_s >= end_s:
            return
        if now_s >= next_report_s:
            report(f"gpuherd waits for {where}, for {end_s - now_s:.0f} s at most: {reason}")
            next_report_s = now_s + REPORT_INTERVAL_S
        await clock.sleep(min(RETRY_INTERVAL_S, end_s - now_s))


async def connection_problem(url: str) -> str | None:
    """Return why no PostgreSQL answers at this address; None if one does, be it with a refusal."""
    # Its driver takes a while to load, and few need it.
    import asyncpg  # noqa: PLC0415

    from gpuherd.adapters.queue.postgres_connect import asyncpg_arguments  # noqa: PLC0415

    try:
        connection = await asyncpg.connect(**{**asyncpg_arguments(url), "timeout": CONNECT_TIMEOUT_S})
    except (asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError) as error:
        # It is just starting or ending, or a proxy before it has nobody to pass us on to.
        return str(error)
    except asyncpg.TargetServerAttributeNotMatched:
        return "it takes no writes, as a standby that was not promoted"
    except TimeoutError:
        return f"no answer within {CONNECT_TIMEOUT_S:.0f} s"
    except OSError as error:
        return (error.strerror or str(error)) if _is_unreachable(error) else None
    except (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError):
        return None
    connection.terminate()
    return None


def _is_unreachable(error: OSError) -> bool:
    """Tell nobody there from somebody who does not want us, as one that speaks no TLS, or a closed socket."""
    if type(error) in (OSError, ConnectionError):
        # Of several addresses, or of a connection that was closed before a word was said.
        return TLS_REJECTED not in str(error)
    # A host may have no name yet, and a socket no file.
    return isinstance(
        error, ConnectionRefusedError | ConnectionResetError | FileNotFoundError | socket.gaierror
    )


def _print_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
