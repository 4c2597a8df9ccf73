"""Keys to come in with."""

from __future__ import annotations

import re
import zlib
from typing import Any

from gpuherd.domain.api_key import ADMIN, Limits, Scope
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.usecases.access.manage_keys import IssuedKey, KeyRequest, add_key

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def key_id_in(key: str) -> str | None:
    """Return the id in what looks like a key and is not mistyped, as a scanner for leaked keys tells it."""
    match = re.fullmatch(r"(ghk_(?P<id>[0-9a-z]{8})_[0-9A-Za-z]{43})(?P<checksum>[0-9A-Za-z]{6})", key)
    if match is None:
        return None
    number = 0
    for digit in match["checksum"]:
        number = number * 62 + _DIGITS.index(digit)
    return match["id"] if number == zlib.crc32(match[1].encode()) else None


async def make_key(plane: Plane, scope: str = "write", *, expires_at: Any = None, **limits: Any) -> IssuedKey:
    """Make a key as an admin would."""
    wanted = KeyRequest((Scope(scope),), f"a {scope} key", expires_at, Limits(**limits))
    return await add_key(plane.services, wanted, ADMIN)


def bearer(made: IssuedKey) -> dict[str, str]:
    """Return the header that comes in with this key."""
    return {"Authorization": f"Bearer {made.secret.reveal()}"}
