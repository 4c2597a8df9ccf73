"""What is needed to count and time our own work, and to render it for a monitoring system."""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """Takes note of work that has ended. It never waits and never raises; each call costs microseconds.

    Every word is one of a few that are known beforehand: never an id, a path or a name that a user chose.
    """

    def request(self, route: str, method: str, status: int | None, seconds: float) -> None:
        """One HTTP request; `route` is its template, `status` None if nobody waited for the answer."""
        ...

    def upstream_call(self, endpoint: str, outcome: str, seconds: float) -> None:
        """One try of one call to the cloud."""
        ...

    def turn(self, kind: str, outcome: str, seconds: float) -> None:
        """One run of one job."""
        ...

    def webhook(self, outcome: str, seconds: float) -> None:
        """One try to deliver a webhook."""
        ...

    def status_left(self, status: str, seconds: float) -> None:
        """An instance has another status now; it was in this one for `seconds`."""
        ...

    def attempt(self, state: str) -> None:
        """A create call has come into this state."""
        ...

    def replacement(self, outcome: str, gap_s: float | None = None) -> None:
        """A replacement has ended; where it was handed over, nothing could be used for `gap_s`."""
        ...


class NullMeter:
    """Takes no note of anything: for tests, and where nobody keeps watch."""

    def request(self, route: str, method: str, status: int | None, seconds: float) -> None: ...

    def upstream_call(self, endpoint: str, outcome: str, seconds: float) -> None: ...

    def turn(self, kind: str, outcome: str, seconds: float) -> None: ...

    def webhook(self, outcome: str, seconds: float) -> None: ...

    def status_left(self, status: str, seconds: float) -> None: ...

    def attempt(self, state: str) -> None: ...

    def replacement(self, outcome: str, gap_s: float | None = None) -> None: ...


class MetricsPage(Protocol):
    """All that was counted and timed, and how things stand now, in the words of a monitoring system."""

    async def render(self, *, money: bool = True) -> tuple[bytes, str]:
        """Return the page and its content type. What cannot be read just now is left out.

        Without `money` nothing on it tells what anything costs, or what a budget is called.
        """
        ...
