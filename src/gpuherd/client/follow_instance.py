"""Follows instances: waits by long poll, reads logs, and reads the stream of events over breaks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Literal

from gpuherd.client.client_connection import (
    FIRST_DELAY_S,
    NO_RETRIES,
    RETRY_AFTER_MAX_S,
    Connection,
    decode,
    tell,
)
from gpuherd.client.client_errors import (
    ApiError,
    ConnectionFailed,
    GpuherdError,
    InstanceFailed,
    UnexpectedReply,
    WaitTimedOut,
)
from gpuherd.client.client_transport import get, path_segment
from gpuherd.contract.instance_models import Instance
from gpuherd.contract.operation_models import Operation
from gpuherd.contract.webhook_models import LiveEvent

Until = Literal["ready", "exited", "deleted"]
LogSource = Literal["instance", "system"]
OnProgress = Callable[[Instance], object]
OnAnswer = Callable[[Instance, Operation | None], object]
OnTrouble = Callable[[GpuherdError], object]
OnBreak = Callable[[GpuherdError], object]
OnResume = Callable[[], object]

# The server answers a long poll at once when the wait is over. A listener also hears the stages between.
POLL_S = 20
PROGRESS_POLL_S = 2
# Time of a busy server beyond the time that it was asked to wait.
REPLY_GRACE_S = 10.0
# A server that answers a long poll at once is asked once a second.
POLL_INTERVAL_MIN_S = 1.0
# The server sends a sign of life into the event stream every 15 seconds.
EVENTS_SILENCE_MAX_S = 45.0
# Longer than the server collects a log that is not followed.
LOG_SILENCE_MAX_S = 60.0
# A program may be silent for long; a dead network looks the same.
FOLLOWED_LOG_SILENCE_MAX_S = 24 * 3600.0
# Every event of gpuherd is far smaller.
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
HISTORY = "/api/events/history"


@dataclass(frozen=True)
class Listeners:
    """The callbacks of a wait."""

    # Called at every change of the status or its reason.
    on_progress: OnProgress | None = None
    # Called with every answer, and with the operation that is followed.
    on_answer: OnAnswer | None = None
    # Called whenever the server cannot be asked.
    on_trouble: OnTrouble | None = None

    @property
    def poll_s(self) -> int:
        return POLL_S if self.on_progress is None and self.on_answer is None else PROGRESS_POLL_S


def instance_path(id_or_name: str) -> str:
    """Return the path of an instance."""
    return f"/api/instances/{path_segment(id_or_name)}"


async def wait_for_instance(
    connection: Connection, id_or_name: str, until: Until, timeout_s: float, listeners: Listeners
) -> Instance:
    """Return the instance when it is `until`, or raise `InstanceFailed` or `WaitTimedOut`."""
    deadline = connection.clock.monotonic() + timeout_s
    instance = await connection.get(Instance, instance_path(id_or_name))
    left_s = deadline - connection.clock.monotonic()
    return await follow_instance(connection, instance, until, left_s, listeners)


async def follow_instance(
    connection: Connection,
    instance: Instance,
    until: Until,
    timeout_s: float,
    listeners: Listeners,
    operation: Operation | None = None,
) -> Instance:
    """Wait for an instance whose present state is known. It waits out an outage of the server.

    If `operation` is given, the end of the operation decides.
    """
    clock = connection.clock
    deadline = clock.monotonic() + timeout_s
    reported: tuple[str, str | None] | None = None
    last_error = ""

    async def report() -> None:
        nonlocal reported
        await tell(listeners.on_answer, instance, operation)
        state = (instance.status, instance.status_reason)
        if state != reported:
            reported = state
            await tell(listeners.on_progress, instance)

    if operation is None:
        operation = await _start_under_way(connection, instance, until)
    await report()
    is_over = outcome_of(instance, until, operation) is not None
    while not is_over:
        asked_at = clock.monotonic()
        left_s = deadline - asked_at
        if left_s <= 0:
            raise WaitTimedOut(instance, until, timeout_s, last_error, operation)
        interval_s = POLL_INTERVAL_MIN_S
        try:
            instance, operation, is_over = await _poll(
                connection, instance.id, until, operation, left_s, listeners.poll_s
            )
        except (ConnectionFailed, ApiError) as error:
            if isinstance(error, ApiError) and not error.is_temporary:
                raise
            last_error = str(error)
            interval_s = min(max(interval_s, _retry_after_s(error)), RETRY_AFTER_MAX_S)
            await tell(listeners.on_trouble, error)
        else:
            last_error = ""
            await report()
        if not is_over:
            spent_s = clock.monotonic() - asked_at
            await clock.sleep(max(0.0, min(interval_s, left_s) - spent_s))
    if not outcome_of(instance, until, operation):
        raise InstanceFailed(instance, until, operation)
    return instance


def outcome_of(instance: Instance, until: Until, operation: Operation | None = None) -> bool | None:
    """Return True if the instance is `until`, False if it needs a new order for that, None if not yet.

    `ready` means usable. The result of an operation counts more than the status.
    """
    if operation is not None:
        return None if operation.status == "running" else operation.status == "succeeded"
    is_leaving = instance.status in ("failed", "deleting", "deleted") or instance.goal == "deleted"
    match until:
        case "ready":
            is_down = instance.status == "exited" or instance.goal == "stopped"
            return instance.usable or (False if is_down or is_leaving else None)
        case "exited":
            return instance.status == "exited" or (False if is_leaving else None)
        case "deleted":
            stays = instance.status == "failed" and instance.goal != "deleted"
            return instance.status == "deleted" or (False if stays else None)


async def _poll(
    connection: Connection,
    instance_id: str,
    until: Until,
    operation: Operation | None,
    left_s: float,
    poll_s: int,
) -> tuple[Instance, Operation | None, bool]:
    """Return the instance, the operation that is followed, and True if the wait is over."""
    wait_s = max(1, min(poll_s, math.ceil(left_s)))
    # By id: a name may pass to another instance, and a deleted instance has none.
    request = get(instance_path(instance_id), wait=until, timeout=wait_s)
    request = replace(request, timeout_s=min(wait_s + REPLY_GRACE_S, left_s + POLL_INTERVAL_MIN_S))
    reply, body = await connection.exchange(request, NO_RETRIES)
    instance = decode(Instance, body)
    if operation is None:
        operation = await _start_under_way(connection, instance, until)
        return instance, operation, operation is None and reply.headers.get("x-wait-timed-out") != "true"
    operation = await _read_operation(connection, operation.operation_id)
    if outcome_of(instance, until, operation) is None:
        return instance, operation, False
    # The operation may have ended after the instance was read.
    request = replace(get(instance_path(instance_id)), timeout_s=REPLY_GRACE_S)
    return decode(Instance, await connection.call(request, NO_RETRIES)), operation, True


async def _start_under_way(connection: Connection, instance: Instance, until: Until) -> Operation | None:
    """Return the running start of an instance that is still exited, if there is one."""
    if until != "ready" or instance.status != "exited" or not instance.operation_id:
        return None
    operation = await _read_operation(connection, instance.operation_id)
    is_start = operation.type in ("start", "restart") and operation.status == "running"
    return operation if is_start else None


async def _read_operation(connection: Connection, operation_id: str) -> Operation:
    request = replace(get(f"/api/operations/{path_segment(operation_id)}"), timeout_s=REPLY_GRACE_S)
    return decode(Operation, await connection.call(request, NO_RETRIES))


def read_log(
    connection: Connection, id_or_name: str, source: LogSource, follow: bool
) -> AsyncGenerator[bytes, None]:
    """Return a log in pieces. After a break nothing is read again: it would begin at the top."""
    silence_s = FOLLOWED_LOG_SILENCE_MAX_S if follow else LOG_SILENCE_MAX_S
    request = get(f"{instance_path(id_or_name)}/logs", source=source, follow=follow)
    return connection.stream(replace(request, timeout_s=silence_s))


async def follow_events(
    connection: Connection,
    instance: str | None,
    type: str | None,
    since: int | None,
    on_break: OnBreak | None = None,
    on_resume: OnResume | None = None,
) -> AsyncGenerator[LiveEvent, None]:
    """Return events without an end. After a break it goes on behind the last event."""
    last = str(since) if since is not None else await _last_event_id(connection, instance, type)
    request = replace(get("/api/events", instance=instance, type=type), timeout_s=EVENTS_SILENCE_MAX_S)
    failures = 0
    is_broken = False
    while True:
        messages = SseParser()
        try:
            async with aclosing(connection.stream(replace(request, last_event_id=last))) as pieces:
                async for piece in pieces:
                    failures = 0
                    if is_broken:
                        is_broken = False
                        await tell(on_resume)
                    for message in messages.feed(piece):
                        yield decode(LiveEvent, json.loads(message.data))
                        last = message.id
            await connection.clock.sleep(FIRST_DELAY_S)
        except (NotAnEventStream, json.JSONDecodeError) as error:
            raise UnexpectedReply(f"the stream of events cannot be read: {error}") from None
        except (ConnectionFailed, ApiError) as error:
            if isinstance(error, ApiError) and not error.is_temporary:
                raise
            failures += 1
            if not is_broken:
                is_broken = True
                await tell(on_break, error)
            await connection.clock.sleep(max(connection.backoff_s(failures), _retry_after_s(error)))


def _retry_after_s(error: ConnectionFailed | ApiError) -> float:
    return error.retry_after_s or 0.0 if isinstance(error, ApiError) else 0.0


async def _last_event_id(connection: Connection, instance: str | None, type: str | None) -> str:
    """Return the end of the log, so that a break before the first event leaves no gap."""
    reply = await connection.call(get(HISTORY, limit=1, instance=instance, type=type))
    last = reply.get("lastEventId")
    if not isinstance(last, str):
        raise UnexpectedReply("the server does not say where its events end; is it as new as this client?")
    return last


class NotAnEventStream(ValueError):
    """The reply is not a stream of server-sent events."""


@dataclass(frozen=True)
class SseMessage:
    """One server-sent event. Its id is the last one of the stream."""

    id: str
    type: str
    data: str


class SseParser:
    """Reads server-sent events out of bytes, wherever the network cuts them."""

    _LINE_BREAK = re.compile(rb"\r\n|\n|\r")

    def __init__(self) -> None:
        self._rest = b""
        self._size = 0
        self._id = self._type = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[SseMessage]:
        """Return the messages that this piece completes."""
        for line in self._lines(piece):
            if not line:
                if self._data:
                    yield SseMessage(self._id, self._type or "message", "\n".join(self._data))
                self._size, self._type, self._data = 0, "", []
                continue
            self._size += len(line)
            if self._size > MESSAGE_BYTES_MAX:
                raise NotAnEventStream("a message has no end")
            self._read_field(line)

    def _lines(self, piece: bytes) -> Iterator[bytes]:
        held = self._rest + piece
        if len(held) > MESSAGE_BYTES_MAX:
            raise NotAnEventStream("a line has no end")
        start = 0
        for found in self._LINE_BREAK.finditer(held):
            if found.group() == b"\r" and found.end() == len(held):
                # Perhaps the first half of a line break.
                break
            yield held[start : found.start()]
            start = found.end()
        self._rest = held[start:]

    def _read_field(self, line: bytes) -> None:
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id" and "\0" not in value:
            self._id = value
