"""Time, randomness and ids as dependencies. A test moves hours in microseconds and replays a seed."""

from __future__ import annotations

import random
import re
import threading
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Time, for all other modules."""

    def now(self) -> datetime:
        """Return the wall clock, aware, in UTC. It may jump: use it for stamps, not for durations."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease. Use it for durations and in-process deadlines."""
        ...

    def boottime(self) -> float:
        """Return seconds that also count while the host is suspended.

        Use it if others may have acted meanwhile: for leases, decisions and prices. Do not compare it with
        `monotonic` or the wall clock.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        ...


ID_RANDOM_BITS = 80


# Jitter and simulation draw from an injected generator, so that a seed repeats a run.
Random = random.Random


class Ids:
    """Makes ids that sort by time and never repeat: a ULID in lower case behind a prefix."""

    def __init__(self, clock: Clock, rng: Random, nonces: Random | None = None):
        self._clock = clock
        self._rng = rng
        self._nonces = nonces or rng
        self._last = 0
        self._lock = threading.Lock()

    def new(self, prefix: str = "", at: datetime | None = None) -> str:
        """Return an id of this moment, or of `at`."""
        millis = int((at or self._clock.now()).timestamp() * 1000)
        fresh = (millis << ID_RANDOM_BITS) | self._rng.getrandbits(ID_RANDOM_BITS)
        # The writer's thread makes ids too. Two threads must not get the same id.
        with self._lock:
            # Two ids of one millisecond, or after a clock stepped back, still sort in the order of creation.
            number = self._last = max(fresh, self._last + 1)
        return prefix + _digits(number, ULID_LENGTH)

    def nonce(self) -> str:
        """Return six characters, 30 random bits: two processes do not draw the same."""
        return _digits(self._nonces.getrandbits(30), 6)

    def secret_nonce(self) -> str:
        """Return 256 random bits in hexadecimal: the secret part of a secret."""
        return f"{self._nonces.getrandbits(256):064x}"


def id_pattern(prefix: str) -> re.Pattern[str]:
    """Return the pattern of the ids with this prefix."""
    return re.compile(rf"{prefix}[0-9a-z]{{26}}")


def ulid_number(text: str) -> int | None:
    """Return the 128 bits of a ULID; None if the text is not one."""
    if len(text) != ULID_LENGTH or not text.isascii() or text.translate(_NOTHING):
        return None
    number = int(text.translate(_BASE_32), 32)
    return None if number >> 128 else number


ULID_LENGTH = 26
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


# The digits of `int`, and a table that removes all characters of a ULID.
_BASE_32 = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")


_NOTHING = dict.fromkeys(map(ord, _ALPHABET))


def _digits(number: int, length: int) -> str:
    """Return a number in base 32, most significant digit first."""
    return "".join([_ALPHABET[number >> shift & 31] for shift in range(5 * (length - 1), -1, -5)])
