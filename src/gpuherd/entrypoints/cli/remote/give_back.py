"""What sees to it that a machine rented for one command is given back, however the command ends."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from types import FrameType

from gpuherd.client.client_errors import ApiError, ConnectionFailed, GpuherdError
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.instance_models import Instance
from gpuherd.entrypoints.cli.render.amounts import usd
from gpuherd.entrypoints.cli.render.output import Output, safe
from gpuherd.entrypoints.cli.runtime.errors import command
from gpuherd.entrypoints.cli.runtime.session import CliContext

# So long a delete is tried that nobody answers; after it, silence and lease end the machine.
GIVE_BACK_LIMIT_S = 60.0
# The label by which a run finds what it has rented.
RUN_LABEL = "gpuherd.run"


def rented_unheard(herd: Gpuherd, run_id: str) -> Sequence[Instance]:
    """Return what came of a create that was interrupted before its answer; if unclear, silence ends it."""
    try:
        return herd.instances.list(label=(RUN_LABEL, run_id)).page().entries
    except GpuherdError:
        return ()


def give_back(cli: CliContext, output: Output, herd: Gpuherd, instance: Instance, *, keep: bool) -> None:
    """Ask for the deletion until somebody has said yes, or say who will do it."""
    if keep and sys.exc_info()[0] is None:
        output.note(f"kept; give it back with: {command('rm', instance)}", "yellow")
        return
    deadline = cli.clock.monotonic() + GIVE_BACK_LIMIT_S
    while True:
        try:
            herd.instances.delete(instance.id)
            output.note(f"given back{_cost_text(herd, instance)}", "dim")
            return
        except ApiError as problem:
            if problem.status in (404, 409, 410):
                return
            trouble: GpuherdError = problem
        except ConnectionFailed as failed:
            trouble = failed
        if cli.clock.monotonic() >= deadline:
            output.note(
                f"the server does not answer ({safe(trouble)}): {safe(instance.name)} is deleted when it has"
                f" not heard of this command for a while; look with: {command('show', instance)}",
                "red",
            )
            return
        cli.clock.pause(1.0)


def _cost_text(herd: Gpuherd, instance: Instance) -> str:
    with suppress(GpuherdError):
        cost = herd.instances.get(instance.id).raw.get("cost") or {}
        if "settled" in cost:
            return f"; it cost {usd(Decimal(cost['settled']))} until now"
    return ""


@contextmanager
def heartbeats(cli: CliContext, instance_id: str, interval_s: float) -> Iterator[None]:
    """Say that the machine is in use, for as long as this process lives."""
    ended = threading.Event()

    def beat() -> None:
        with cli.client() as herd:
            while not ended.wait(interval_s):
                # Whatever it is, the next one may arrive; silence is counted in many of them.
                with suppress(GpuherdError):
                    herd.instances.heartbeat(instance_id)

    beating = threading.Thread(target=beat, daemon=True)
    beating.start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let a closed terminal or a polite kill end it like Ctrl-C: the machine is given back."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with ExitStack() as restored:
        for number in (signal.SIGTERM, signal.SIGHUP):
            restored.callback(signal.signal, number, signal.signal(number, interrupt))
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let nothing but kill -9 interrupt the giving back; it takes a minute at most."""
    with ExitStack() as restored:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            restored.callback(signal.signal, number, signal.signal(number, signal.SIG_IGN))
        yield
