"""A moment is waited out in pauses that grow; an outage is not."""

from __future__ import annotations

import psycopg
import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.postgres_guard import (
    FIRST_PAUSE_S,
    PAUSE_MAX_S,
    Backoff,
    Reconnector,
)
from tests.support.fake_clock import FakeClock

AWAY = sa.exc.DBAPIError.instance("", None, psycopg.OperationalError("away"), psycopg.Error)
DEAD = sa.exc.DBAPIError.instance(
    "", None, psycopg.OperationalError("dead"), psycopg.Error, connection_invalidated=True
)


class Waiting:
    """Time that passes only in pauses."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.pauses: list[float] = []
        self.is_closing = False

    def __call__(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.clock._elapsed_ns += round(seconds * 1e9)
        return self.is_closing


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


class Server:
    """Answers each attempt with what the test has put in line; then it is there."""

    def __init__(self, *answers: Exception) -> None:
        self.answers = list(answers)
        self.attempts = 0

    def __call__(self) -> str:
        self.attempts += 1
        if self.answers:
            raise self.answers.pop(0)
        return "there"


def test_pauses_grow_to_a_limit_and_fill_the_time(waiting: Waiting) -> None:
    backoff = Backoff(waiting.clock, 3.0, waiting)
    while backoff.pause_unless_expired():
        pass
    assert waiting.pauses[0] == FIRST_PAUSE_S
    assert max(waiting.pauses) == PAUSE_MAX_S
    assert waiting.pauses[:-1] == sorted(waiting.pauses[:-1])
    assert sum(waiting.pauses) == pytest.approx(3.0)


def test_nobody_waits_who_is_closing(waiting: Waiting) -> None:
    waiting.is_closing = True
    assert not Backoff(waiting.clock, 3.0, waiting).pause_unless_expired()


def test_a_server_that_comes_back_is_waited_for(waiting: Waiting) -> None:
    assert Reconnector(waiting.clock, 3.0, waiting).retry_while_away(Server(*[AWAY] * 5)) == "there"
    assert len(waiting.pauses) == 5


def test_after_the_limit_the_next_ones_are_refused_at_once_until_it_is_back(waiting: Waiting) -> None:
    reconnect = Reconnector(waiting.clock, 3.0, waiting)
    server = Server(*[AWAY] * 100)
    with pytest.raises(sa.exc.DBAPIError):
        reconnect.retry_while_away(server)
    assert sum(waiting.pauses) == pytest.approx(3.0)
    waiting.pauses.clear()
    with pytest.raises(sa.exc.DBAPIError):
        reconnect.retry_while_away(server)
    assert waiting.pauses == []
    assert reconnect.retry_while_away(Server()) == "there"
    assert reconnect.retry_while_away(Server(AWAY)) == "there"
    assert waiting.pauses == [FIRST_PAUSE_S]


def test_a_dead_connection_is_replaced_without_a_pause_but_only_once(waiting: Waiting) -> None:
    reconnect = Reconnector(waiting.clock, 0, waiting)
    assert reconnect.retry_while_away(Server(DEAD)) == "there"
    with pytest.raises(sa.exc.DBAPIError):
        reconnect.retry_while_away(Server(DEAD, DEAD))
    with pytest.raises(sa.exc.DBAPIError):
        reconnect.retry_while_away(Server(AWAY))
    assert waiting.pauses == []
