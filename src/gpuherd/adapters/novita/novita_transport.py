"""The transport to Novita: the order of calls, the circuit breaker, and retries."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
from collections.abc import (
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Self

from gpuherd.adapters.novita import novita_failures
from gpuherd.adapters.novita.novita_call import (
    NoReply,
    NotSent,
    NovitaExchange,
    NovitaReply,
)
from gpuherd.adapters.novita.novita_failures import ResourceKind
from gpuherd.adapters.novita.redaction import NO_SECRETS, CallSecrets
from gpuherd.domain.errors import CircuitOpen, GpuherdError, RateLimited
from gpuherd.domain.secret import Secret
from gpuherd.domain.trace_spans import (
    ATTEMPT,
    HTTP_STATUS,
    OUTCOME,
    Attribute,
    EndedSpan,
    SpanKind,
)
from gpuherd.ports.clock_port import Clock, Random
from gpuherd.resilience import rate_limiter
from gpuherd.resilience.circuit_breaker import BreakerOpen, CircuitBreaker, Permit
from gpuherd.resilience.rate_limiter import Lane, RateLimiter
from gpuherd.resilience.retry import retry

READ_ATTEMPTS_MAX = 3
READ_BACKOFF_S = 1.0
READ_BACKOFF_CAP_S = 30.0


# How much later than its longest wait a change may be sent.
SEND_SLACK_S = 1.0


@dataclass(frozen=True)
class CallRecord:
    """One try of one call, for metrics and logs. It contains no secret."""

    endpoint: str
    # ok, refused, throttled, server_error, garbage, timeout, lost, not_sent, circuit_open, limited, cancelled
    outcome: str
    status: int | None
    # Of the exchange alone, without the wait for its turn.
    duration_s: float
    method: str
    # The number of the try, from 1.
    attempt: int


CallObserver = Callable[[CallRecord], None]


@dataclass(frozen=True)
class _LimiterWait:
    limiter: RateLimiter
    lane: Lane
    max_wait_s: float


@dataclass(frozen=True)
class _Call:
    method: str
    path: str
    send: Callable[[], Awaitable[NovitaReply]]
    turns: Sequence[_LimiterWait]
    may_probe: bool = True
    attempt: int = 1


class _ReadFailed(Exception):
    """Carries the error of one try of a read, and whether (or after how long) to try again."""

    def __init__(self, error: GpuherdError, retry_after: bool | float) -> None:
        super().__init__()
        self.error = error
        self.retry_after = retry_after


class NovitaTransport:
    """Sends calls to Novita. Reads are retried if that helps; a change is sent at most once.

    A change waits at most `change_wait_s` for its turn and `request_timeout_s` for its reply; the sum is its
    maximum duration. A cancelled change may have been made, so the cancelling code must treat it like
    `OutcomeUnknown`.
    """

    def __init__(
        self,
        exchange: NovitaExchange,
        *,
        clock: Clock,
        rng: Random,
        limiter: RateLimiter,
        breaker: CircuitBreaker,
        watch_budget: RateLimiter | None = None,
        observe: CallObserver | None = None,
        request_timeout_s: float = 30.0,
        read_deadline_s: float = 60.0,
        change_wait_s: float = 5.0,
        read_wait_s: float = 30.0,
    ) -> None:
        self._exchange = exchange
        self._clock = clock
        self._rng = rng
        self._limiter = limiter
        self._breaker = breaker
        self._watch_budget = watch_budget
        self._observe = observe
        self._request_timeout_s = request_timeout_s
        self._read_deadline_s = read_deadline_s
        self._change_wait_s = change_wait_s
        self._read_wait_s = read_wait_s

    async def read(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        about: ResourceKind = ResourceKind.ACCOUNT,
        lane: Lane = Lane.RENTAL,
        budget: RateLimiter | None = None,
    ) -> dict[str, Any]:
        """Return the JSON object at `path`. Calls that only watch also pay from the watch budget.

        With a `budget` of its own the call is not made if that is used up (`RateLimited`).
        """
        turns = [_LimiterWait(self._limiter, lane, self._read_wait_s)]
        if budget is not None:
            turns.insert(0, _LimiterWait(budget, lane, 0.0))
        if lane is Lane.WATCH and self._watch_budget is not None:
            turns.insert(0, _LimiterWait(self._watch_budget, lane, self._read_wait_s))
        tries = itertools.count(1)

        def read_once() -> Awaitable[dict[str, Any]]:
            n = next(tries)
            # A retry uses a new connection.
            send = partial(self._exchange.get, path, params or {}, self._request_timeout_s, fresh=n > 1)
            return self._read_once(_Call("GET", path, send, turns, attempt=n), about)

        try:
            return await retry(
                read_once,
                attempts=READ_ATTEMPTS_MAX,
                base_s=READ_BACKOFF_S,
                cap_s=READ_BACKOFF_CAP_S,
                clock=self._clock,
                rng=self._rng,
                is_retryable=lambda error: isinstance(error, _ReadFailed) and error.retry_after,
                deadline_s=self._read_deadline_s,
            )
        except _ReadFailed as failed:
            error = failed.error
        raise error

    async def change(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        may_probe: bool = True,
        send_by_s: float = math.inf,
        secrets: CallSecrets = NO_SECRETS,
    ) -> NovitaReply:
        """Send one change, once and not after `send_by_s`, and return whatever Novita replied.

        Raises `CloudUnavailable` when surely nothing was sent and `OutcomeUnknown` when no whole reply came.
        `may_probe=False` keeps a call that costs money from being the one that tests a sick cloud.
        No text of the reply will show any of the `secrets`.
        """
        now_s = self._clock.boottime()
        wait_s = min(self._change_wait_s, max(0.0, send_by_s - now_s))
        # A change that is later than this comes from a process that was suspended.
        send_by_s = min(send_by_s, now_s + self._change_wait_s + SEND_SLACK_S)
        send = partial(self._exchange.post, path, body, self._request_timeout_s, send_by_s, secrets)
        turns = [_LimiterWait(self._limiter, Lane.URGENT, wait_s)]
        error: GpuherdError
        try:
            # guard: a change goes out once
            return await self._attempt(_Call("POST", path, send, turns, may_probe))
        except NotSent as failed:
            error = novita_failures.not_sent(str(failed))
        except NoReply as failed:
            # guard: a lost reply is no refusal
            error = novita_failures.lost_reply(str(failed))
        raise error

    def with_breaker(self, breaker: CircuitBreaker) -> Self:
        """Return the same transport with another breaker, for calls whose failures say nothing about the
        rest.
        """
        view = copy.copy(self)
        # guard: a bill that is away keeps nobody from renting
        view._breaker = breaker
        return view

    @property
    def account_secrets(self) -> CallSecrets:
        return self._exchange.account_secrets

    def learn_credentials(self, credentials: tuple[Secret, ...]) -> None:
        self._exchange.learn_credentials(credentials)

    async def close(self) -> None:
        await self._exchange.close()

    async def _read_once(self, call: _Call, about: ResourceKind) -> dict[str, Any]:
        failed: _ReadFailed
        try:
            reply = await self._attempt(call)
        except NotSent as lost:
            failed = _ReadFailed(novita_failures.not_sent(str(lost)), True)
        except NoReply as lost:
            retry_after = 0.0 if lost.stale_connection else True
            failed = _ReadFailed(novita_failures.no_reply(str(lost), timed_out=lost.timed_out), retry_after)
        else:
            error = novita_failures.failure_of_read(reply, about)
            if error is None and reply.body is not None:
                return reply.body
            failed = _ReadFailed(error or novita_failures.unreadable(), _retry_after(reply))
        raise failed

    async def _attempt(self, call: _Call) -> NovitaReply:
        """Make one call when its turn comes, and report the duration of the exchange to the observer."""
        sent_at = None
        try:
            await self._wait_for_limiters(call)
            sent_at = self._clock.monotonic()
            reply = await self._send_with_breaker(call)
        except BaseException as error:
            self._record_call(call, _outcome_of_error(error), None, sent_at)
            raise
        self._record_call(call, _outcome_of_reply(reply), reply.status, sent_at)
        return reply

    async def _wait_for_limiters(self, call: _Call) -> None:
        # Do not use up a turn for a call that the breaker would reject.
        if (retry_after_s := self._breaker.retry_after_s()) > 0:
            raise _circuit_open(retry_after_s)
        try:
            for turn in call.turns:
                await turn.limiter.acquire(turn.lane, turn.max_wait_s)
        except rate_limiter.RateLimitExceeded as refused:
            raise RateLimited(
                "our own limit of calls to Novita is used up", retry_after_s=refused.retry_after_s
            ) from None

    async def _send_with_breaker(self, call: _Call) -> NovitaReply:
        with self._breaker_permit(call.may_probe) as permit:
            try:
                reply = await call.send()
            except NoReply as lost:
                if lost.stale_connection:
                    permit.neutral()
                raise
            if reply.status == 429:
                permit.neutral()
                self._limiter.throttled(reply.retry_after_s)
            elif _counts_as_failure(reply):
                permit.failure()
        return reply

    def _breaker_permit(self, may_probe: bool) -> Permit:
        try:
            return self._breaker.acquire(probe_allowed=may_probe)
        except BreakerOpen as refused:
            raise _circuit_open(refused.retry_after_s) from None

    def _record_call(self, call: _Call, outcome: str, status: int | None, sent_at: float | None) -> None:
        if self._observe is None:
            return
        duration_s = 0.0 if sent_at is None else self._clock.monotonic() - sent_at
        # A faulty observer must not lose the id of a machine that was just rented.
        with contextlib.suppress(Exception):
            record = CallRecord(call.path, outcome, status, duration_s, call.method, call.attempt)
            self._observe(record)


def _circuit_open(retry_after_s: float) -> CircuitOpen:
    return CircuitOpen(
        "too many calls to Novita failed lately, so this one was not made", retry_after_s=retry_after_s
    )


def _counts_as_failure(reply: NovitaReply) -> bool:
    """Return True if a reply shows that Novita is unwell. A clear refusal shows that it is well."""
    if 400 <= reply.status < 500:
        return reply.status == 408
    return not reply.is_success or reply.is_garbage


def _retry_after(reply: NovitaReply) -> bool | float:
    if reply.status in (408, 429) or reply.status >= 500:
        return True if reply.retry_after_s is None else reply.retry_after_s
    return False


def _outcome_of_reply(reply: NovitaReply) -> str:
    if reply.status == 429:
        return "throttled"
    if reply.status >= 500:
        return "server_error"
    if reply.is_success:
        return "garbage" if reply.is_garbage else "ok"
    return "refused" if reply.status >= 400 else "garbage"


def _outcome_of_error(error: BaseException) -> str:
    match error:
        case NotSent():
            return "not_sent"
        case NoReply(timed_out=timed_out):
            return "timeout" if timed_out else "lost"
        case CircuitOpen():
            return "circuit_open"
        case RateLimited():
            return "limited"
        case _:
            return "cancelled"


# The span names of the calls of a rental.
NAMES = {
    "/gpu/instance/create": "create",
    "/gpu/instance": "get",
    "/gpu/instance/start": "start",
    "/gpu/instance/stop": "stop",
    "/gpu/instance/delete": "delete",
    "/gpu/instance/restart": "restart",
    "/gpu/instances": "list",
}


def call_span(call: CallRecord, begun: datetime, ended: datetime) -> EndedSpan:
    """Return the span of one try, as a part of the open span."""
    attributes: dict[str, Attribute] = {
        "http.request.method": call.method,
        # Without the query, so no id is in it.
        "url.path": call.endpoint,
        ATTEMPT: call.attempt,
        OUTCOME: call.outcome,
    }
    if call.status is not None:
        attributes[HTTP_STATUS] = call.status
    name = NAMES.get(call.endpoint, call.endpoint.strip("/"))
    is_failed = call.outcome != "ok"
    return EndedSpan(
        f"novita {name}", begun, ended, kind=SpanKind.CLIENT, failed=is_failed, attributes=attributes
    )
