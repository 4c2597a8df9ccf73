"""Keys to come in with."""

from __future__ import annotations

from typing import Any

from gpuherd.domain.access.api_key import Limits, Scope
from gpuherd.domain.access.caller import ADMIN
from gpuherd.entrypoints.plane import Plane
from gpuherd.usecases.access.manage_keys import IssuedKey, KeyRequest


async def make_key(plane: Plane, scope: str = "write", *, expires_at: Any = None, **limits: Any) -> IssuedKey:
    """Make a key as an admin would."""
    wanted = KeyRequest((Scope(scope),), f"a {scope} key", expires_at, Limits(**limits))
    return await plane.keys.manage.add(wanted, ADMIN)


def bearer(made: IssuedKey) -> dict[str, str]:
    """Return the header that comes in with this key."""
    return {"Authorization": f"Bearer {made.secret.reveal()}"}
