"""Time and randomness as dependencies, so that a test can move hours in microseconds and replay a seed."""

from __future__ import annotations

import asyncio
import os
import random
import re
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """What the rest of the house may know about time."""

    def now(self) -> datetime:
        """Return the wall clock, aware, in UTC. It may jump: use it for stamps, not for durations."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only ever grow. Use it for durations and in-process deadlines."""
        ...

    def boottime(self) -> float:
        """Return such seconds that go on while the host is suspended.

        Use it where others may have acted meanwhile: whether a lease still holds, whether a decision or a
        price is too old. It is no more comparable with `monotonic` than with the wall clock.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        ...


def boot_clock(platform: str) -> Callable[[], float]:
    """Return the clock that counts while the host sleeps, or the best there is on this platform."""
    return partial(time.clock_gettime, time.CLOCK_BOOTTIME) if platform == "linux" else time.monotonic


_boottime = boot_clock(sys.platform)


def host_boot_id(path: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    """Return what tells this boot of the host from all others, or nothing where the platform has no such."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


class SystemClock:
    """The real thing."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return _boottime()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


RANDOM_BUFFER_BYTES = 4096
ID_RANDOM_BITS = 80

Random = random.Random
"""Jitter and simulation draw from one of these, handed in, so that a seed repeats a run."""


class BufferedSystemRandom(random.SystemRandom):
    """The system's own chance, fetched in large pieces: ids are drawn several times for each request."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._buffer, self._used = b"", 0
        self._tens: Iterator[tuple[bytes]] = iter(())

    def getrandbits(self, k: int, /) -> int:
        if k == ID_RANDOM_BITS:
            # An iterator of the standard library gives no two threads the same.
            (drawn,) = next(self._tens, None) or self._more_tens()
            return int.from_bytes(drawn, "big")
        size = (k + 7) // 8
        # No two threads may get the same bytes.
        with self._lock:
            if self._used + size > len(self._buffer):
                self._buffer, self._used = os.urandom(max(RANDOM_BUFFER_BYTES, size)), 0
            drawn = self._buffer[self._used : self._used + size]
            self._used += size
        return int.from_bytes(drawn, "big") >> (size * 8 - k)

    def _more_tens(self) -> tuple[bytes]:
        tens = struct.iter_unpack("10s", os.urandom(RANDOM_BUFFER_BYTES // 10 * 10))
        first: tuple[bytes] = next(tens)
        self._tens = tens
        return first


class Ids:
    """Makes ids that sort by time and never repeat: a ULID in lower case behind a prefix."""

    def __init__(self, clock: Clock, rng: Random, nonces: Random | None = None):
        self._clock = clock
        self._rng = rng
        self._nonces = nonces or rng
        self._last = 0
        self._lock = threading.Lock()

    def new(self, prefix: str = "", at: datetime | None = None) -> str:
        """Return an id of this moment; whoever has just looked at the clock may hand it in."""
        millis = int((at or self._clock.now()).timestamp() * 1000)
        fresh = (millis << ID_RANDOM_BITS) | self._rng.getrandbits(ID_RANDOM_BITS)
        # The writer's thread makes ids too, and no two threads may get the same one.
        with self._lock:
            # Two ids of one millisecond, or of a clock that stepped back, still sort in the order they were
            # made.
            number = self._last = max(fresh, self._last + 1)
        return prefix + _ulid(number)

    def nonce(self) -> str:
        """Return six characters, 30 bits of chance: two processes do not draw the same."""
        drawn = self._nonces.getrandbits(30)
        return "".join([_PAIRS[(drawn >> shift) & 1023] for shift in (20, 10, 0)])

    def secret_nonce(self) -> str:
        """Return 256 bits of chance in hexadecimal: the part of a secret that nobody can guess."""
        return f"{self._nonces.getrandbits(256):064x}"


def id_pattern(prefix: str) -> re.Pattern[str]:
    """Return the pattern of the ids with this prefix."""
    return re.compile(rf"{prefix}[0-9a-z]{{26}}")


def ulid_number(text: str) -> int | None:
    """Return the 128 bits of a ULID; None if it is none."""
    if len(text) != ULID_LENGTH or not text.isascii() or text.translate(_NOTHING):
        return None
    number = int(text.translate(_BASE_32), 32)
    return None if number >> 128 else number


ULID_LENGTH = 26
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
# The digits that `int` knows, and a table that leaves nothing of a ULID.
_BASE_32 = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
_NOTHING = dict.fromkeys(map(ord, _ALPHABET))
# Two digits at a time: ids are made several times for each request.
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_40_BITS = (1 << 40) - 1


@lru_cache(maxsize=16)
def _time_digits(millis: int) -> str:
    pairs = _PAIRS
    return (
        f"{pairs[millis >> 40]}{pairs[millis >> 30 & 1023]}{pairs[millis >> 20 & 1023]}"
        f"{pairs[millis >> 10 & 1023]}{pairs[millis & 1023]}"
    )


def _ulid(number: int) -> str:
    # In three parts, because small numbers are shifted faster, and several ids are made in a millisecond.
    time, high, low = number >> ID_RANDOM_BITS, number >> 40 & _40_BITS, number & _40_BITS
    pairs = _PAIRS
    return (
        f"{_time_digits(time)}"
        f"{pairs[high >> 30]}{pairs[high >> 20 & 1023]}{pairs[high >> 10 & 1023]}{pairs[high & 1023]}"
        f"{pairs[low >> 30]}{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
    )
