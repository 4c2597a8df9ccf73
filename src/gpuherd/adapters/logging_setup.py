"""Logging: one line for each event on standard error, JSON unless a person looks, without secrets."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gpuherd.adapters.system_clock import SystemClock
from gpuherd.contract.wire_models import iso_time
from gpuherd.domain.secret import HIDDEN, Secret

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# Shorter values would blot out innocent words.
REDACT_MIN_CHARS = 6
_clock = SystemClock()


def configure_logs(
    level: str,
    secrets: Iterable[Secret | None],
    stream: TextIO | None = None,
    add_context: Processor | None = None,
) -> None:
    """Set up logging for the whole process.

    `add_context` adds fields to each event, such as the ids of the request that is being answered.
    """
    out = stream or sys.stderr
    redactor = Redactor(secrets)
    render = (
        structlog.dev.ConsoleRenderer() if out.isatty() else structlog.processors.JSONRenderer(default=str)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *([] if add_context is None else [add_context]),
            structlog.processors.add_log_level,
            _add_timestamp,
            structlog.processors.format_exc_info,
            render,
            lambda _logger, _method, line: redactor.redact(str(line)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(LogOutput(out)),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
    # Libraries that log headers or URLs stay quiet; gpuherd logs what matters of them.
    logging.basicConfig(
        stream=LogOutput(out), level=logging.WARNING, format="%(levelname)s %(name)s %(message)s", force=True
    )
    logging.getLogger().handlers[0].addFilter(_LibraryRedactor(redactor))


class LogOutput:
    """Writes each line at once, and drops it if the stream is full or closed.

    Code that logs is in the middle of something, often of trouble: a full disk must not end every loop of the
    service.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> None:
        """Write a piece of text, or drop it."""
        with suppress(OSError, ValueError):
            self._stream.write(text)

    def flush(self) -> None:
        """Hand over what was written, if that is possible."""
        with suppress(OSError, ValueError):
            self._stream.flush()


class Redactor:
    """Removes the values of secrets from a finished line, also in the form that JSON gives them."""

    def __init__(self, secrets: Iterable[Secret | None]):
        values = {s.reveal() for s in secrets if s is not None and len(s.reveal()) >= REDACT_MIN_CHARS}
        values |= {json.dumps(value)[1:-1] for value in values}
        # The longest first: a secret may be a part of another, and no rest of the longer one may stay.
        self._values = sorted(values, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._values)))

    def redact(self, text: str) -> str:
        """Return the text without any secret in it."""
        return self._pattern.sub(HIDDEN, text) if self._values else text


class _LibraryRedactor(logging.Filter):
    def __init__(self, redactor: Redactor):
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = self._redactor.redact(record.getMessage())
        record.args = ()
        return True


def _add_timestamp(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event["timestamp"] = iso_time(_clock.now())
    return event
