"""Fixtures of the command line's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.support import Cli, FakeApi, running_api


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with running_api() as fake:
        yield fake


@pytest.fixture
def cli(api: FakeApi) -> Cli:
    return Cli(api)
