"""The port to serve on: free, ours already, or somebody else's."""

from __future__ import annotations

from enum import Enum, auto

from gpuherd.bootstrap.data_dir import CannotStart
from gpuherd.bootstrap.doctor.aside import aside
from gpuherd.bootstrap.doctor.asking import ask
from gpuherd.bootstrap.doctor.judging import OK, PROBLEM
from gpuherd.bootstrap.doctor.server import is_ours
from gpuherd.bootstrap.serve import LOOPBACK, listening
from gpuherd.clock import Clock
from gpuherd.entrypoints.cli.doctor import Finding
from gpuherd.settings import Settings

NAME = "port"


class Port(Enum):
    """Whose it is."""

    FREE = auto()
    OURS = auto()
    TAKEN = auto()


async def check_port(settings: Settings, clock: Clock) -> list[Finding]:
    """Try to take the port for a moment, and see who has it if that fails."""
    where = f"{settings.host}:{settings.port}"
    try:
        await aside(lambda: _try(settings))
    except CannotStart as refused:
        answer = await ask(f"{_reachable(settings)}/livez", None, clock)
        return [judge_port(where, Port.OURS if is_ours(answer) else Port.TAKEN, refused.message)]
    findings = [judge_port(where, Port.FREE)]
    if settings.host not in LOOPBACK and settings.admin_key is None:
        findings.append(unguarded(settings.host))
    return findings


def _try(settings: Settings) -> None:
    with listening(settings.host, settings.port):
        pass


def _reachable(settings: Settings) -> str:
    """Return an address for what listens on all addresses."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def judge_port(where: str, whose: Port, why: str = "") -> Finding:
    """Say whether a server can be started."""
    match whose:
        case Port.FREE:
            return Finding(NAME, OK, f"{where} is free")
        case Port.OURS:
            return Finding(NAME, OK, f"{where} is served by gpuherd")
        case Port.TAKEN:
            number = where.rpartition(":")[2]
            advice = (
                f"see who has it (ss -ltnp 'sport = :{number}') and end that, or set another GPUHERD_PORT"
            )
            return Finding(NAME, PROBLEM, why or f"{where} is taken", advice)


def unguarded(host: str) -> Finding:
    """Say why the service would refuse to start."""
    words = f"GPUHERD_HOST is {host}, which others can reach, and no GPUHERD_ADMIN_KEY is set"
    return Finding(
        NAME, PROBLEM, words, "set GPUHERD_ADMIN_KEY (16 characters or more), or GPUHERD_HOST=127.0.0.1"
    )
