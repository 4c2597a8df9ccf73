"""The port to serve on: free, ours already, or somebody else's."""

from __future__ import annotations

from enum import Enum, auto

from gpuherd.bootstrap.key_files import CannotStart
from gpuherd.bootstrap.serve import LOOPBACK_HOSTS, bound_socket
from gpuherd.ops.doctor.http_query import http_query
from gpuherd.ops.doctor.results import CheckResult
from gpuherd.ops.doctor.server import is_gpuherd
from gpuherd.ops.doctor.verdicts import OK, PROBLEM
from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.concurrency import run_in_daemon_thread
from gpuherd.settings import Settings

NAME = "port"


class PortOwner(Enum):
    """Whose it is."""

    FREE = auto()
    OURS = auto()
    TAKEN = auto()


async def check_port(settings: Settings, clock: Clock) -> list[CheckResult]:
    """Try to take the port for a moment, and see who has it if that fails."""
    where = f"{settings.host}:{settings.port}"
    try:
        await run_in_daemon_thread(lambda: _try(settings))
    except CannotStart as refused:
        answer = await http_query(f"{_reachable(settings)}/livez", None, clock)
        return [judge_port(where, PortOwner.OURS if is_gpuherd(answer) else PortOwner.TAKEN, refused.message)]
    findings = [judge_port(where, PortOwner.FREE)]
    if settings.host not in LOOPBACK_HOSTS and settings.admin_key is None:
        findings.append(no_admin_key_finding(settings.host))
    return findings


def _try(settings: Settings) -> None:
    with bound_socket(settings.host, settings.port):
        pass


def _reachable(settings: Settings) -> str:
    """Return an address for what listens on all addresses."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def judge_port(where: str, owner: PortOwner, why: str = "") -> CheckResult:
    """Say whether a server can be started."""
    match owner:
        case PortOwner.FREE:
            return CheckResult(NAME, OK, f"{where} is free")
        case PortOwner.OURS:
            return CheckResult(NAME, OK, f"{where} is served by gpuherd")
        case PortOwner.TAKEN:
            number = where.rpartition(":")[2]
            advice = (
                f"see who has it (ss -ltnp 'sport = :{number}') and end that, or set another GPUHERD_PORT"
            )
            return CheckResult(NAME, PROBLEM, why or f"{where} is taken", advice)


def no_admin_key_finding(host: str) -> CheckResult:
    """Say why the service would refuse to start."""
    words = f"GPUHERD_HOST is {host}, which others can reach, and no GPUHERD_ADMIN_KEY is set"
    return CheckResult(
        NAME, PROBLEM, words, "set GPUHERD_ADMIN_KEY (16 characters or more), or GPUHERD_HOST=127.0.0.1"
    )
