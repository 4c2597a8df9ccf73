"""Send one webhook and judge the reply."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime

from gpuherd import __version__
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_endpoint import EndpointKind
from gpuherd.domain.webhooks.webhook_signing import Signer, unsigned_headers
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.egress_port import (
    EgressFailure,
    EgressHttp,
    EgressReply,
    FailureCategory,
)
from gpuherd.ports.webhook_port import DeliveryResult
from gpuherd.resilience.retry import parse_retry_after

# Little of a body is read, and none of it is ever shown.
REPLY_MAX_BYTES = 4096


_DETAIL_MAX_CHARS = 200
_THROTTLING = frozenset({429, 502, 504})
GONE = "gone"


# What Slack says of a webhook that nobody can use again: removed, its channel or its team no longer there.
_SLACK_GONE = frozenset(
    {
        *("no_service", "no_service_id", "no_team", "team_disabled", "invalid_token"),
        *("channel_not_found", "channel_is_archived"),
    }
)


# Discord's codes for an unknown channel, an unknown webhook and a token that is not the webhook's.
_DISCORD_GONE = frozenset({10003, 10015, 50027})


def judge(reply: EgressReply, now: datetime, kind: EndpointKind = EndpointKind.WEBHOOK) -> DeliveryResult:
    """Return how a try went."""
    accepted = 200 <= reply.status <= 299
    if not accepted and (told := _GONE_WORDS.get(kind, _no_words)(reply)):
        return DeliveryResult(False, reply.status, GONE, told, None, reply.elapsed_s)
    return DeliveryResult(
        accepted=accepted,
        status=reply.status,
        category=_category(reply.status),
        detail=f"the receiver answered {reply.status}",
        retry_after_s=None if accepted else _retry_after_s(reply, now, kind),
        elapsed_s=reply.elapsed_s,
    )


def no_reply(failure: EgressFailure, elapsed_s: float) -> DeliveryResult:
    """Return that no answer came."""
    return DeliveryResult(False, None, failure.category.value, safe_detail(failure.detail), None, elapsed_s)


def safe_detail(text: str) -> str:
    """Return at most 200 printable ASCII characters of `text`."""
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in text)[
        :_DETAIL_MAX_CHARS
    ]


def _category(status: int) -> str:
    if status == 410:
        return GONE
    if status in _THROTTLING:
        return "throttled"
    by_hundreds = {2: "ok", 3: "redirect", 4: "http_4xx", 5: "http_5xx"}
    return by_hundreds.get(status // 100, FailureCategory.PROTOCOL.value)


def _slack_gone(reply: EgressReply) -> str:
    word = reply.body[:100].decode("ascii", "replace").strip()
    # One of our own words by now, so it may be shown.
    return f"Slack answered {reply.status} {word}" if word in _SLACK_GONE else ""


def _discord_gone(reply: EgressReply) -> str:
    code = _json_object(reply).get("code")
    known = isinstance(code, int) and code in _DISCORD_GONE
    return f"Discord answered {reply.status} with its code {code}" if known else ""


def _no_words(_: EgressReply) -> str:
    return ""


_GONE_WORDS: dict[EndpointKind, Callable[[EgressReply], str]] = {
    EndpointKind.SLACK: _slack_gone,
    EndpointKind.DISCORD: _discord_gone,
}


def _retry_after_s(reply: EgressReply, now: datetime, kind: EndpointKind) -> float | None:
    header = reply.headers.get("retry-after")
    if header is None and kind is EndpointKind.DISCORD and reply.status == 429:
        # It says so in the body, and not always in the header.
        header = str(_json_object(reply).get("retry_after"))
    return parse_retry_after(header, now)


def _json_object(reply: EgressReply) -> dict[str, object]:
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


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
