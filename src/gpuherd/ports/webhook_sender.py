"""What the use cases need to tell the user's own systems what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gpuherd.domain.secret import Secret


@dataclass(frozen=True)
class DeliveryResult:
    """How one try ended. `detail` is our own sentence and never repeats what the receiver wrote.

    `category` is ok, redirect, gone, throttled, http_4xx, http_5xx, or a `FailureCategory`.
    """

    accepted: bool
    status: int | None
    category: str
    detail: str
    retry_after_s: float | None
    elapsed_s: float


class WebhookSender(Protocol):
    """Carries one event to one receiver."""

    async def send(
        self,
        url: str,
        event_id: str,
        body: bytes,
        now: datetime,
        secrets: Sequence[Secret] | None = None,
    ) -> DeliveryResult:
        """Try once to deliver exactly these bytes; whatever the receiver or the network does is a result.

        Signed with each of `secrets`; without any given, with those of the installation.
        """
        ...
