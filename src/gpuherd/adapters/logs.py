"""How log events leave: a line each on standard error, JSON unless a person looks, secrets blotted out."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gpuherd.domain.secret import HIDDEN, Secret

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# Shorter values would blot out innocent words.
BLOT_MIN = 6


def configure_logs(level: str, secrets: Iterable[Secret | None], stream: TextIO | None = None) -> None:
    """Set up logging for the whole process."""
    out = stream or sys.stderr
    render: Processor
    if out.isatty():
        render = structlog.dev.ConsoleRenderer()
    else:
        render = structlog.processors.JSONRenderer(ensure_ascii=True)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            Blotter(secrets),
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )
    # Libraries that log headers or URLs stay quiet; what matters of them is logged by us.
    logging.basicConfig(
        stream=out, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s", force=True
    )
    logging.getLogger().handlers[0].addFilter(_LibraryBlotter(secrets))


class Blotter:
    """Removes the values of secrets from whatever is about to be written, however they got there."""

    def __init__(self, secrets: Iterable[Secret | None]):
        self._values = [s.reveal() for s in secrets if s is not None and len(s.reveal()) >= BLOT_MIN]

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {key: self.clean(value) for key, value in event.items()}

    def clean(self, value: Any) -> Any:
        """Return the value without any secret in it."""
        if isinstance(value, str):
            for secret in self._values:
                value = value.replace(secret, HIDDEN)
            return value
        if isinstance(value, dict):
            return {key: self.clean(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean(inner) for inner in value]
        return value if isinstance(value, int | float | bool | type(None)) else self.clean(str(value))


class _LibraryBlotter(logging.Filter):
    def __init__(self, secrets: Iterable[Secret | None]):
        super().__init__()
        self._blotter = Blotter(secrets)

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = self._blotter.clean(record.getMessage())
        record.args = ()
        return True
