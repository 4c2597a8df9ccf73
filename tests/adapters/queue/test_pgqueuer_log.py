"""PGQueuer's logger says little, and nothing that is not ours to show."""

from __future__ import annotations

import logging

import pytest

from gpuherd.adapters.queue.pgqueuer_log import LOGGER, quiet_pgqueuer_log


def test_warnings_pass_and_chatter_does_not(caplog: pytest.LogCaptureFixture) -> None:
    quiet_pgqueuer_log()
    logging.getLogger(LOGGER).info("chatter")
    logging.getLogger(LOGGER).warning("job %d", 7)
    assert caplog.messages == ["job 7"]


def test_an_error_keeps_its_kind_and_loses_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    quiet_pgqueuer_log()
    logging.getLogger(LOGGER).error("failed: %s", "job", exc_info=RuntimeError("the-secret"))
    assert caplog.messages == ["failed: job (RuntimeError)"]
    assert "the-secret" not in caplog.text


def test_quieting_twice_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    quiet_pgqueuer_log()
    filters = list(logging.getLogger(LOGGER).filters)
    quiet_pgqueuer_log()
    assert logging.getLogger(LOGGER).filters == filters
