"""Carries a signed event to its receiver through the SSRF-safe client, and says in our words how it went."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gpuherd import __version__
from gpuherd.adapters.webhooks.replies import REPLY_MAX_BYTES, judge, no_reply
from gpuherd.clock import Clock
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.webhooks.signing import Signer, unsigned_headers
from gpuherd.ports.egress import EgressFailure, EgressHttp
from gpuherd.ports.webhooks import DeliveryResult

TIMEOUT_S = 15.0


class HttpWebhookSender:
    """Implements `WebhookSender`; without a signer the events go out unsigned."""

    def __init__(self, http: EgressHttp, clock: Clock, signer: Signer | None = None):
        self._http = http
        self._clock = clock
        self._signer = signer

    async def send(
        self,
        url: str,
        event_id: str,
        body: bytes,
        now: datetime,
        secrets: Sequence[Secret] | None = None,
    ) -> DeliveryResult:
        signer = self._signer if secrets is None else Signer(secrets)
        started = self._clock.monotonic()
        try:
            reply = await self._http.request(
                "POST",
                url,
                headers=_headers(signer, event_id, body, now),
                body=body,
                timeout_s=TIMEOUT_S,
                max_bytes=REPLY_MAX_BYTES,
            )
        except EgressFailure as failure:
            return no_reply(failure, self._clock.monotonic() - started)
        return judge(reply, now)


def _headers(signer: Signer | None, event_id: str, body: bytes, now: datetime) -> dict[str, str]:
    own = signer.headers(event_id, body, now) if signer else unsigned_headers(event_id, now)
    return {"content-type": "application/json", "user-agent": f"gpuherd/{__version__}", **own}
