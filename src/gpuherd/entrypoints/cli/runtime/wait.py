"""Waits for one instance to its end, and knows what to print to somebody who leaves early."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from gpuherd.client.client_connection import Clock
from gpuherd.client.client_errors import (
    ApiError,
    ConnectionFailed,
    GpuherdError,
    InstanceFailed,
    WaitTimedOut,
)
from gpuherd.client.follow_instance import Until
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.instance_models import Instance
from gpuherd.entrypoints.cli.render.instances import endpoint_lines
from gpuherd.entrypoints.cli.render.output import Output
from gpuherd.entrypoints.cli.render.progress import SilentWatcher, Watcher, watcher_for
from gpuherd.entrypoints.cli.render.stages import SeenInstance
from gpuherd.entrypoints.cli.render.tables import pairs
from gpuherd.entrypoints.cli.runtime.boot_log import boot_log
from gpuherd.entrypoints.cli.runtime.errors import detail_of, wait_command

Begin = Callable[[Watcher], SeenInstance]


class InstanceWaiter:
    """Follows what `begin` finds or makes. `unanswered` is the farewell before that has happened.

    `ordered` means that an operation is followed, and not only the instance.
    """

    def __init__(
        self,
        output: Output,
        clock: Clock,
        timeout_s: float,
        *,
        until: Until = "ready",
        ordered: bool = False,
        unanswered: str = "",
    ) -> None:
        self.deadline = clock.monotonic() + timeout_s
        self._output = output
        self._clock = clock
        self.until = until
        self._ordered = ordered
        self._unanswered = unanswered
        self._instance: Instance | None = None

    def wait_to_end(self, herd: Gpuherd, begin: Begin) -> Instance:
        """Return it when it is there, else raise why not. The last state goes to stdout anyway."""
        try:
            with watcher_for(self._output, self._clock, self.until, ordered=self._ordered) as watcher:
                seen = self.begin_only(begin, watcher)
                with self._boot_log(herd, seen.instance, watcher):
                    instance = herd.instances.follow(
                        seen.instance,
                        self.until,
                        self.deadline - self._clock.monotonic(),
                        operation=seen.operation,
                        on_answer=lambda it, operation: watcher.observe(SeenInstance(it, operation)),
                        on_trouble=lambda trouble: _tell(watcher, trouble),
                    )
        except (WaitTimedOut, InstanceFailed) as ended:
            self._conclude(ended.instance)
            raise
        self._conclude(instance)
        return instance

    def begin_only(self, begin: Begin, watcher: Watcher | None = None) -> SeenInstance:
        """Begin, without following yet."""
        seen = begin(watcher or SilentWatcher())
        self._instance = seen.instance
        return seen

    def _boot_log(self, herd: Gpuherd, instance: Instance, watcher: Watcher) -> AbstractContextManager[None]:
        boots = self.until == "ready" and not instance.usable
        return boot_log(herd, instance.id, watcher) if boots else nullcontext()

    def interrupt_message(self) -> str:
        """Say how to come back."""
        if self._instance is None:
            return self._unanswered
        return f"still working in the background; follow it with: {wait_command(self._instance, self.until)}"

    def _conclude(self, instance: Instance) -> None:
        if not self._output.for_people:
            self._output.answer(instance.raw, instance.id)
        elif self.until == "ready" and instance.usable and (ways := endpoint_lines(instance)):
            self._output.show(pairs(ways))


def _tell(watcher: Watcher, trouble: GpuherdError) -> None:
    assert isinstance(trouble, ConnectionFailed | ApiError), "nothing else is waited out"
    watcher.unreachable(detail_of(trouble))
