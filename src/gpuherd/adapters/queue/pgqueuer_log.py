"""PGQueuer's own logger, turned down to what a person should read."""

from __future__ import annotations

import logging

LOGGER = "pgqueuer"


class WithoutTraceback(logging.Filter):
    """Keeps the kind of an error and drops its traceback, whose frames may hold what a log must not."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.exc_info, tuple) and record.exc_info[0] is not None:
            record.msg = f"{record.getMessage()} ({record.exc_info[0].__name__})"
            record.args = ()
            record.exc_info = None
            record.exc_text = None
        return True


def quiet_pgqueuer_log() -> None:
    """Let PGQueuer warn, without tracebacks; calling it twice changes nothing."""
    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.WARNING)
    if not any(isinstance(known, WithoutTraceback) for known in logger.filters):
        logger.addFilter(WithoutTraceback())
