"""How log events leave: a line each on standard error, JSON unless a person looks, secrets redacted.

Lines that nobody waits for are flushed together, some milliseconds later; a warning flushes them all."""

from __future__ import annotations

import atexit
import json
import logging
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gpuherd.clock import SystemClock
from gpuherd.contract.codec.values import iso_time
from gpuherd.domain.access.secret import HIDDEN, Secret

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# Shorter values would blot out innocent words.
REDACT_MIN_CHARS = 6
# As long as a line may wait for others. A process that is killed takes at most so much of its log along.
FLUSH_INTERVAL_S = 0.05


def configure_logs(
    level: str,
    secrets: Iterable[Secret | None],
    stream: TextIO | None = None,
    add_context: Processor | None = None,
) -> RequestLogLines | None:
    """Set up logging for the whole process; return the fast way for lines about requests, if there is one.

    `add_context` tells in the midst of what something was logged, beside what was bound to the context.
    """
    out = stream or sys.stderr
    secrets = tuple(secrets)
    requests: RequestLogLines | None = None
    render: Processor
    make_logger: Callable[..., WrappedLogger]
    if out.isatty():
        render = structlog.dev.ConsoleRenderer()
        make_logger = structlog.WriteLoggerFactory(file=out)
    else:
        render = json_line
        buffered = BufferedLines(out)
        requests = RequestLogLines(buffered, Redactor(secrets), enabled=LEVELS[level] <= LEVELS["info"])
        atexit.register(buffered.flush_lines)
        make_logger = lambda *_: buffered  # noqa: E731
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *([] if add_context is None else [add_context]),
            structlog.processors.add_log_level,
            _stamp,
            structlog.processors.format_exc_info,
            _redacted(render, Redactor(secrets)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=make_logger,
        cache_logger_on_first_use=True,
    )
    # Libraries that log headers or URLs stay quiet; what matters of them is logged by us.
    logging.basicConfig(
        stream=out, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s", force=True
    )
    logging.getLogger().handlers[0].addFilter(_LibraryRedactor(secrets))
    return requests


class BufferedLines:
    """The end of structlog's chain: takes finished lines, and writes many with one call."""

    def __init__(self, stream: TextIO, flush_interval_s: float = FLUSH_INTERVAL_S):
        self._stream = stream
        self._flush_interval_s = flush_interval_s
        # Appended to and taken from by several threads, so it is never exchanged for a new one.
        self._lines: deque[str] = deque()
        self._writing = threading.Lock()
        self._has_lines = threading.Event()
        self._pause = threading.Event()
        threading.Thread(target=self._run, name="gpuherd-log", daemon=True).start()

    def info(self, line: str) -> None:
        """Take a line that can wait."""
        self._lines.append(line)
        if not self._has_lines.is_set():
            self._has_lines.set()

    debug = info

    def warning(self, line: str) -> None:
        """Take a line that somebody may need to understand a crash: it is out before this returns."""
        self._lines.append(line)
        self.flush_lines()

    warn = error = critical = fatal = exception = msg = warning

    def flush_lines(self) -> None:
        """Write all that was taken so far.

        Whoever logs is in the middle of something, often of trouble, and must not stumble over a log that
        cannot be written: a full disk would else end every loop of the service for good.
        """
        with self._writing, suppress(OSError, ValueError):
            if lines := [self._lines.popleft() for _ in range(len(self._lines))]:
                self._stream.write("\n".join(lines) + "\n")
                self._stream.flush()

    def _run(self) -> None:
        while True:
            self._has_lines.wait()
            self._pause.wait(self._flush_interval_s)
            # Before the lines are taken, so that a line which comes meanwhile is not forgotten.
            self._has_lines.clear()
            self.flush_lines()


class RequestLogLines:
    """The line of each request, past structlog: it is most of all lines, and always has the same members."""

    def __init__(self, lines: BufferedLines, redactor: Redactor, *, enabled: bool):
        self._lines = lines
        self._redactor = redactor
        self._enabled = enabled

    def __call__(
        self,
        method: str,
        path: str,
        status: int | None,
        duration_ms: float,
        request_id: str,
        correlation_id: str,
        at: datetime,
    ) -> None:
        if not self._enabled:
            return
        # The ids are ours or known to be harmless; the rest is the client's word.
        line = (
            f'{{"event":"http.request","level":"info","timestamp":"{iso_time(at)}","request_id":"{request_id}",'
            f'"correlation_id":"{correlation_id}","status":{"null" if status is None else status},'
            f'"duration_ms":{duration_ms},"method":{_quote(method)},"path":{_quote(path)}}}'
        )
        self._lines.info(self._redactor.redact(line))


# `json.dumps` with any option makes a new encoder at each call, which costs more than the encoding.
_encode = json.JSONEncoder(default=str).encode
# What the encoder does with a text, without the way there.
_quote = json.encoder.encode_basestring_ascii
_clock = SystemClock()


def _stamp(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event["timestamp"] = iso_time(_clock.now())
    return event


def json_line(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """Render an event as a line of JSON."""
    return _encode(event)


def _redacted(render: Processor, redactor: Redactor) -> Processor:
    return lambda logger, method, event: redactor.redact(str(render(logger, method, event)))


class Redactor:
    """Removes the values of secrets from a finished line, however they got there."""

    def __init__(self, secrets: Iterable[Secret | None]):
        values = {s.reveal() for s in secrets if s is not None and len(s.reveal()) >= REDACT_MIN_CHARS}
        # In a line of JSON some characters look different.
        values |= {_encode(value)[1:-1] for value in values}
        # The longest first: one may be a part of another, and no rest of it shall stay.
        self._values = sorted(values, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._values)))

    def redact(self, text: str) -> str:
        """Return the text without any secret in it."""
        # To look for each of them is ten times faster than the pattern, and nearly always enough.
        for value in self._values:
            if value in text:
                return self._pattern.sub(HIDDEN, text)
        return text


class _LibraryRedactor(logging.Filter):
    def __init__(self, secrets: Iterable[Secret | None]):
        super().__init__()
        self._redactor = Redactor(secrets)

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = self._redactor.redact(record.getMessage())
        record.args = ()
        return True
