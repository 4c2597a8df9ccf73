"""A form that is sent twice does its work once: each one that is shown carries a word of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.web.forms import Form, form_of
from gpuherd.ports.access import StoredReply


def form_key(form: Form) -> str:
    """Return the idempotency key of a form."""
    once = form.text("once")
    if not once.isascii() or not once.isalnum() or len(once) > 100:
        raise InvalidRequest([FieldProblem("form", "INVALID_FORM", "this form is not ours; open it anew")])
    return f"form-{once}"


async def done_once(
    request: Request, body: Mapping[str, Any], act: Callable[[], Awaitable[Response]]
) -> Response:
    """Return where `act` leads; for the same form again the same, without doing it again."""
    plane, made = plane_of(request), list[Response]()
    claim = plane.keys.claim_request(
        acting_caller(request).key_id, form_key(form_of(request)), request.url.path, body=body
    )

    async def answer() -> StoredReply:
        made.append(await act())
        return StoredReply(made[0].status_code, {"location": made[0].headers["location"]}, "")

    stored = await plane.keys.answer_once(claim, answer)
    return made[0] if stored is None else Response(status_code=stored.status, headers=dict(stored.headers))
