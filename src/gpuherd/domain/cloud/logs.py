"""The two logs of a machine, and where the cloud streams them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from gpuherd.domain.cloud.machine import Phase


class LogSource(StrEnum):
    """Whose words: those of the program on the machine, or those of the cloud about it."""

    INSTANCE = "instance"
    SYSTEM = "system"


@dataclass(frozen=True)
class LogAddresses:
    """Where the logs of a machine are streamed, empty where they are not.

    An address may carry a token, so it is for the egress alone: never shown, logged or stored.
    """

    phase: Phase
    instance: str = field(default="", repr=False)
    system: str = field(default="", repr=False)

    def of(self, source: LogSource) -> str:
        """Return the address of one of the logs."""
        return self.system if source is LogSource.SYSTEM else self.instance
