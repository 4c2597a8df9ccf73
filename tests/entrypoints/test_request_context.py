"""Whatever is logged in the midst of a request bears the ids of that request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from gpuherd.entrypoints.use_case_access import RequestContext, add_request_ids, current_request


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    before, capture = structlog.get_config(), LogCapture()
    structlog.configure(
        processors=[add_request_ids, capture], wrapper_class=structlog.make_filtering_bound_logger(0)
    )
    yield capture.entries
    structlog.configure(**before)


async def test_a_line_of_a_request_bears_its_ids_and_one_of_nobody_s_does_not(lines: list[Any]) -> None:
    async def answer(request_id: str) -> None:
        current_request.set(RequestContext(request_id, f"{request_id}-c", datetime(2026, 1, 2, tzinfo=UTC)))
        await asyncio.sleep(0)
        structlog.get_logger().info("midst")

    await asyncio.gather(answer("one"), answer("two"))
    structlog.get_logger().info("outside")
    assert [(it.get("request_id"), it.get("correlation_id")) for it in lines] == [
        ("one", "one-c"),
        ("two", "two-c"),
        (None, None),
    ]
