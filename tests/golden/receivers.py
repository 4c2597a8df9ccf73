"""Everybody whom webhooks are sent to: they answer as a story says, and what reaches them is recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpuherd.adapters.egress.people_notifier import ChatAndMailNotifier
from gpuherd.adapters.egress.webhook_sender import HttpWebhookSender
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_signing import Signer
from gpuherd.ports.egress_port import EgressFailure, EgressReply, FailureCategory
from tests.golden.recording import Recording, header_lines
from tests.support.herd import Herd

SECRET = "whsec_Z29sZGVuLXJlY29yZGluZ3MtYW5kLW5vdGhpbmctZWxzZQ=="


class Receivers:
    """Stands where the way out to other hosts is; a status of 0 means that nobody is there."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.answer: Callable[[str], int] = lambda _: 200
        self.retry_after: str | None = None

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float,
        max_bytes: int,
    ) -> EgressReply:
        status = self.answer(url)
        self._recording.heading("a webhook is sent")
        self._recording.add(f"{method} {url}", *header_lines(">", headers))
        self._recording.add_body(body or b"")
        self._recording.add(f"< {status or 'nobody answers'}")
        if not status:
            raise EgressFailure(FailureCategory.REFUSED, "the host refused the connection")
        replied = {} if self.retry_after is None else {"retry-after": self.retry_after}
        return EgressReply(status, replied, b"", False, 0.0, "192.0.2.1")


def receivers_of(herd: Herd, recording: Recording) -> Receivers:
    """Let the herd send its webhooks as the service does: signed, with all their headers."""
    receivers = Receivers(recording)
    herd.receiver.instead = HttpWebhookSender(receivers, herd.clock, Signer([Secret(SECRET)]))
    herd.notifier.instead = ChatAndMailNotifier(receivers, herd.clock)
    return receivers
