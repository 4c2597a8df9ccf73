"""Carries a signed event to its receiver through the SSRF-safe client, and says in our words how it went."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gpuherd import __version__
from gpuherd.clock import Clock
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.webhooks.signing import ID_HEADER, Signer
from gpuherd.ports.egress import EgressFailure, EgressHttp, EgressReply, FailureCategory
from gpuherd.ports.webhooks import DeliveryResult
from gpuherd.resilience.retry import parse_retry_after

TIMEOUT_S = 15.0
# Nobody looks at the body; a little is read so that a polite receiver can finish writing it.
_REPLY_MAX_BYTES = 4096
_DETAIL_MAX_CHARS = 200
_THROTTLING = frozenset({429, 502, 504})


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
                max_bytes=_REPLY_MAX_BYTES,
            )
        except EgressFailure as failure:
            elapsed_s = self._clock.monotonic() - started
            return DeliveryResult(False, None, failure.category.value, _safe(failure.detail), None, elapsed_s)
        return _judge(reply, now)


def _headers(signer: Signer | None, event_id: str, body: bytes, now: datetime) -> dict[str, str]:
    signed = signer.headers(event_id, body, now) if signer else {ID_HEADER: event_id}
    return {"content-type": "application/json", "user-agent": f"gpuherd/{__version__}", **signed}


def _judge(reply: EgressReply, now: datetime) -> DeliveryResult:
    accepted = 200 <= reply.status <= 299
    return DeliveryResult(
        accepted=accepted,
        status=reply.status,
        category=_category(reply.status),
        detail=f"the receiver answered {reply.status}",
        retry_after_s=None if accepted else parse_retry_after(reply.headers.get("retry-after"), now),
        elapsed_s=reply.elapsed_s,
    )


def _category(status: int) -> str:
    if status == 410:
        return "gone"
    if status in _THROTTLING:
        return "throttled"
    by_hundreds = {2: "ok", 3: "redirect", 4: "http_4xx", 5: "http_5xx"}
    return by_hundreds.get(status // 100, FailureCategory.PROTOCOL.value)


def _safe(text: str) -> str:
    """Return at most 200 printable ASCII characters of `text`."""
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in text)[
        :_DETAIL_MAX_CHARS
    ]
