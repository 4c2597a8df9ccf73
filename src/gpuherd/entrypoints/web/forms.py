"""Forms: read with care, and only from our own pages.

The cookie is not sent with what other sites begin (SameSite=Strict). Beyond that, a browser says where a
request comes from, and every form carries a word that only pages of its session know.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.types import Scope

from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.entrypoints.auth.browser_auth import single_header
from gpuherd.entrypoints.problems import Forbidden
from gpuherd.usecases.access.sessions import Session

FIELDS_MAX = 200
FORM = b"application/x-www-form-urlencoded"
TOKEN = "form_token"  # noqa: S105  the name of a field
SAME_SITE = (b"same-origin", b"none")


class Form:
    """What somebody filled in."""

    def __init__(self, pairs: Sequence[tuple[str, str]]):
        self._pairs = pairs

    def text(self, name: str) -> str:
        """Return a field without blanks around it, empty where there is none."""
        return next((value.strip() for key, value in self._pairs if key == name), "")

    def as_typed(self, name: str) -> str:
        """Return a field with the blanks around it: in a password they count."""
        return next((value for key, value in self._pairs if key == name), "")

    def below(self, prefix: str) -> dict[str, str]:
        """Return the fields whose names begin with `prefix`, by the rest of their names."""
        found = {
            key.removeprefix(prefix): value.strip() for key, value in self._pairs if key.startswith(prefix)
        }
        return {key: value for key, value in found.items() if value}

    def all(self, name: str) -> list[str]:
        """Return every value of a field that may be chosen several times."""
        return [value.strip() for key, value in self._pairs if key == name and value.strip()]


async def read_form(request: Request) -> Form:
    """Return the form of a request that one of our own pages has sent."""
    check_origin(request.scope)
    if single_header(request.scope, b"content-type").split(b";")[0].strip().lower() != FORM:
        raise _unreadable("a form is expected")
    raw = await request.body()
    try:
        pairs = parse_qsl(
            raw.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, encoding="utf-8", errors="strict"
        )
    except ValueError:
        raise _unreadable("the form cannot be read") from None
    return Form(pairs)


def check_origin(scope: Scope) -> None:
    """Refuse what another site has begun, as far as the browser says so."""
    site = single_header(scope, b"sec-fetch-site").lower()
    if site:
        if site not in SAME_SITE:
            raise _foreign()
        return
    if any(key == b"origin" for key, _ in scope["headers"]):
        origin = urlsplit(single_header(scope, b"origin").decode("latin-1"))
        # A proxy may speak TLS for us, so the scheme may differ; the host may not.
        if (
            not origin.netloc
            or origin.netloc.lower() != single_header(scope, b"host").decode("latin-1").lower()
        ):
            raise _foreign()


def check_token(form: Form, session: Session) -> None:
    """Refuse a form that was not made for this session."""
    sent = form.text(TOKEN).encode("utf-8", "replace")
    if not hmac.compare_digest(sent, session.form_token.encode()):
        raise Forbidden("this form is from an earlier session; open the page again and repeat it")


def form_of(request: Request) -> Form:
    """Return the form that was read and checked before the page was asked."""
    form = request.state.form
    assert isinstance(form, Form)
    return form


def _foreign() -> Forbidden:
    return Forbidden("this was sent by another site, so nothing was done")


def _unreadable(message: str) -> InvalidRequest:
    return InvalidRequest([FieldProblem("form", "INVALID_FORM", message)])
