"""A herd on a calm simulated cloud, for one fault at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from tests.usecases.conftest import clock, herd, look_every, world  # noqa: F401


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    """Everything that is logged, as events."""
    before = structlog.get_config()
    capture = LogCapture()
    structlog.configure(
        processors=[capture],
        wrapper_class=structlog.make_filtering_bound_logger(0),
        cache_logger_on_first_use=False,
    )
    yield capture.entries
    structlog.configure(**before)
