"""Whether somebody who was let in once may still read: asked again and again by replies that go on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from starlette.requests import Request

from gpuherd.entrypoints.auth.authorization import caller_of
from gpuherd.entrypoints.replies import plane_of
from gpuherd.usecases.access.sessions import Session

SESSION_INTERVAL = timedelta(minutes=1)


def may_go_on(request: Request, session_interval: timedelta = SESSION_INTERVAL) -> Callable[[], bool]:
    """Return what tells, again and again, whether the key is still good, and the session if there is one.

    A session may be signed out of in the very moment in which its reply begins, so it is looked at again
    after `session_interval`: whoever reads comes back.
    """
    plane, key_id = plane_of(request), caller_of(request).key_id
    session: Session | None = request.scope.get("session")
    until = None if session is None else min(session.expires_at, plane.clock.now() + session_interval)

    def may_read() -> bool:
        is_over = until is not None and plane.clock.now() >= until
        return not is_over and plane.keys.key_cache.caller_by_key_id(key_id) is not None

    return may_read
