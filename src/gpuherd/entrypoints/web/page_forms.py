"""Forms: read one, check its origin and token, do it once, show errors beside fields."""

from __future__ import annotations

import hmac
from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from gpuherd.domain.errors import (
    CloudError,
    FieldProblem,
    GpuherdError,
    InvalidRequest,
)
from gpuherd.entrypoints.http_auth import acting_caller
from gpuherd.entrypoints.problem_response import Forbidden, problem_of
from gpuherd.entrypoints.session_cookie import single_header
from gpuherd.entrypoints.use_case_access import plane_of
from gpuherd.ports.access_port import StoredReply
from gpuherd.usecases.access.audit_requests import answer_once, claim_request
from gpuherd.usecases.access.sign_in import Session

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
    claim = claim_request(
        plane.services, acting_caller(request).key_id, form_key(form_of(request)), request.url.path, body=body
    )

    async def answer() -> StoredReply:
        made.append(await act())
        return StoredReply(made[0].status_code, {"location": made[0].headers["location"]}, "")

    stored = await answer_once(plane.services, claim, answer)
    return made[0] if stored is None else Response(status_code=stored.status, headers=dict(stored.headers))


UNDER_WAY = "IDEMPOTENCY_KEY_IN_USE"


# How the codes end of what got no answer.
NOT_KNOWN = "OUTCOME_UNKNOWN"


T = TypeVar("T")


@dataclass(frozen=True)
class FormRefusal:
    """Which form was refused, and why; without any, nothing was."""

    form: str = ""
    status: int = 200
    problems: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    # It may have been done all the same.
    is_open: bool = False

    @classmethod
    def of(cls, error: GpuherdError, form: str) -> Self:
        """Return what a page says of an error."""
        status = problem_of(error).status
        if isinstance(error, InvalidRequest):
            found = problems_by_field(error.problems, {})
            return cls(form, status, found, found.get("form", ""))
        if error.code == UNDER_WAY:
            return cls(form, status, message="this was sent already and is under way; open the page anew")
        return cls(form, status, message=error.message, is_open=error.code.endswith(NOT_KNOWN))

    def problems_of(self, form: str) -> Mapping[str, str]:
        """Return what is wrong with the fields of one of several forms."""
        return self.problems if form == self.form else {}


NOT_REFUSED = FormRefusal()


async def unless_unreachable(question: Awaitable[T], otherwise: T) -> tuple[T, str]:
    """Return what the cloud answers; or something else, and why it cannot be asked."""
    try:
        return await question, ""
    except CloudError as error:
        return otherwise, error.message


def typed_number(text: str) -> int | str:
    """Return a whole number, or the text if it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else text


def typed_pairs(text: str) -> dict[str, str]:
    """Read `team=vision, run=7`."""
    pairs = (part.strip().partition("=") for part in text.replace("\n", ",").split(",") if part.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}


def typed_ports(text: str) -> list[str]:
    """Read `8000/http, 22/tcp`."""
    return text.replace(",", " ").split()


def typed_mounts(text: str) -> list[dict[str, str]]:
    """Read `ID:/data, ID:/models`."""
    pairs = (word.partition(":") for word in text.replace(",", " ").split())
    return [{"id": volume_id, "mountPath": path} for volume_id, _, path in pairs]


def typed_envs(text: str) -> dict[str, str]:
    """Read one `NAME=VALUE` a line."""
    pairs = (line.partition("=") for line in text.splitlines() if line.strip())
    return {name.strip(): value for name, _, value in pairs}


# Fields of the API that the form asks for in other words.
_FORM_NAMES = {
    "healthCheck": "healthPort",
    "waitForCapacity": "waitMinutes",
    "lease": "leaseHours",
    "region": "regions",
}


def problems_by_field(
    problems: Iterable[FieldProblem], names: Mapping[str, str] = _FORM_NAMES
) -> dict[str, str]:
    """Return for each field of a form what is wrong with it; `names` are fields with other names there."""
    found: dict[str, str] = {}
    for it in problems:
        asked = it.field.split(".")[0]
        name = names.get(asked, asked)
        said = it.message.removeprefix(f"{asked}: ").removeprefix(f"{asked} ")
        found[name] = f"{found[name]}; {said}" if name in found else said
    return found
