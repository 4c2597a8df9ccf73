"""No environment variable moves the queue's tables."""

from __future__ import annotations

import importlib

import pytest

from gpuherd.adapters.queue import pgqueuer_names


def test_the_environment_changes_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    before = pgqueuer_names.PGQUEUER_SETTINGS
    for variable in (
        "CHANNEL",
        "FUNCTION",
        "QUEUE_TABLE",
        "PGQUEUER_QUEUE_TABLE",
        "TRIGGER",
        "STATISTICS_TABLE",
    ):
        monkeypatch.setenv(variable, "elsewhere")
    monkeypatch.setenv("PGQUEUER_PREFIX", "other_")
    monkeypatch.setenv("PGQUEUER_SCHEMA", "other")
    monkeypatch.setenv("DURABILITY", "volatile")
    monkeypatch.setenv("WIDEN_ID", "false")
    try:
        assert before == importlib.reload(pgqueuer_names).PGQUEUER_SETTINGS
    finally:
        monkeypatch.undo()
        importlib.reload(pgqueuer_names)
