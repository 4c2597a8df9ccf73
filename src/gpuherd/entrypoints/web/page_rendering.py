"""Pages: templates, numbers and times, navigation, error pages."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gpuherd import __version__
from gpuherd.contract.wire_models import Refusal, price_text
from gpuherd.domain.api_key import Caller, Scope
from gpuherd.domain.errors import GpuherdError, NotFound
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.entrypoints import problem_response
from gpuherd.entrypoints.durations import format_duration, relative_time
from gpuherd.entrypoints.route_scopes import PAGE_SCOPES
from gpuherd.entrypoints.use_case_access import current_request, plane_of
from gpuherd.usecases.access.sign_in import Session

CENT, FINE = Decimal("0.01"), Decimal("0.0001")
FINE_BELOW = Decimal(10)
NOTHING = "–"
GOOD, MOVING, IDLE, GONE, BAD = "good", "moving", "idle", "gone", "bad"


_LOOKS = {
    Status.READY: GOOD,
    Status.EXITED: IDLE,
    Status.DELETED: GONE,
    Status.FAILED: BAD,
}


def money(amount: Decimal | None) -> str:
    """Return an amount with at least two decimals, four where it is small enough that they matter."""
    if amount is None:
        return NOTHING
    if abs(amount) >= FINE_BELOW:
        return f"${amount.quantize(CENT):,}"
    digits = f"{amount.quantize(FINE):f}".rstrip("0")
    whole, _, cents = digits.partition(".")
    return f"${whole}.{cents.ljust(2, '0')}"


def signed(amount: Decimal) -> str:
    """Return a difference, with its sign."""
    shown = money(abs(amount))
    sign = "" if shown == money(Decimal(0)) else "+" if amount > 0 else "−"
    return f"{sign}{shown}"


def hourly(amount: Decimal | None) -> str:
    """Return a price for an hour."""
    return NOTHING if amount is None else f"{price_text(amount)}/h"


def ago(moment: datetime, now: datetime) -> str:
    """Say when it was, or will be."""
    return relative_time(moment, now)


def elapsed(moment: datetime, now: datetime) -> str:
    """Say for how long it has been so."""
    return format_duration((now - moment).total_seconds())


def exact(seconds: float | None) -> str:
    """Say how long something took."""
    return NOTHING if seconds is None else format_duration(seconds)


def iso_time(moment: datetime) -> str:
    """Return a time for programs."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stamp(moment: datetime) -> str:
    """Return a time in full, for people."""
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def plain(word: object) -> str:
    """Return a word of ours as people write it."""
    return str(word).replace("_", " ")


def event_words(kind: str) -> str:
    """Return what an event is called: `instance.health_checking` is "health checking"."""
    return plain(kind.removeprefix("instance."))


def look_of(instance: Instance) -> str:
    """Return by which shape and colour an instance is shown."""
    if instance.status is Status.RUNNING:
        return GOOD if instance.usable else MOVING
    return _LOOKS.get(instance.status, MOVING)


def look_of_status(word: str) -> str:
    """Return the same for the name of a status in a history."""
    if word == Status.RUNNING:
        return GOOD
    return _LOOKS.get(Status(word), MOVING) if word in set(Status) else IDLE


NAV_ENTRIES = (
    ("/", "Overview"),
    ("/instances", "Instances"),
    ("/offers", "Offers"),
    ("/images", "Images"),
    ("/volumes", "Volumes"),
    ("/secrets", "Secrets"),
    ("/money", "Money"),
    ("/jobs", "Jobs"),
    ("/webhooks", "Webhooks"),
    ("/endpoints", "Endpoints"),
    ("/orphans", "Orphans"),
    ("/keys", "Keys"),
    ("/audit", "Audit"),
    ("/settings", "Settings"),
)


@dataclass(frozen=True)
class NavEntry:
    """One entry of the navigation."""

    path: str
    title: str
    is_here: bool


def navigation(scope: Scope | None, path: str) -> list[NavEntry]:
    """Return the pages that a key may open."""
    if scope is None:
        return []
    return [
        NavEntry(where, title, _is_here(where, path))
        for where, title in NAV_ENTRIES
        if (needed := PAGE_SCOPES["GET", where]) is None or scope.includes(needed)
    ]


def _is_here(where: str, path: str) -> bool:
    return path == where or (where != "/" and path.startswith(f"{where}/"))


def event_types() -> str:
    """Return the names of all events: a browser hears only of those that it asks for by name."""
    named = {
        value for name, value in vars(instance_event).items() if name.isupper() and isinstance(value, str)
    }
    names = {it for it in named if "." in it} | instance_event.ENDPOINT_WEBHOOK_TYPES
    return " ".join(sorted(names | set(instance_event.STATUS_EVENTS.values())))


DIRECTORY = Path(__file__).parent / "static"


TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class StaticFile:
    """One file as it is served."""

    body: bytes
    media_type: str
    digest: str


@cache
def static_files() -> dict[str, StaticFile]:
    """Return all files by name. What is not in here cannot be asked for, however its path is written."""
    found = {}
    for path in sorted(DIRECTORY.iterdir()):
        if media_type := TYPES.get(path.suffix):
            body = path.read_bytes()
            found[path.name] = StaticFile(body, media_type, hashlib.sha256(body).hexdigest()[:16])
    return found


def static_url(name: str) -> str:
    """Return the address of a file, which changes when the file does."""
    return f"/static/{static_files()[name].digest}/{name}"


async def serve(request: Request) -> Response:
    """Send a file; an address with another hash was made for a file that we do not have."""
    file = static_files().get(request.path_params["name"])
    if file is None or file.digest != request.path_params["digest"]:
        raise NotFound("there is no such file")
    return Response(file.body, media_type=file.media_type, headers={"Cache-Control": FOREVER})


STATIC_ROUTES: Routes = {("GET", "/static/{digest}/{name}"): serve}
Handler = Callable[[Request], Awaitable[Response]]
Routes = Mapping[tuple[str, str], Handler]


def without_blanks(request: Request) -> Request:
    """Return the request as if nothing had been said of the fields that were left empty."""
    said = [(name, value) for name, value in request.query_params.multi_items() if value]
    return Request({**request.scope, "query_string": urlencode(said).encode()})


def next_page(request: Request, cursor: str | None) -> str:
    """Return the address of the next page with the same filters, or nothing if this is the last."""
    if cursor is None:
        return ""
    said = {name: value for name, value in request.query_params.items() if value and name != "done"}
    return f"{request.url.path}?{urlencode({**said, 'cursor': cursor})}"


# Up to where a page knows what happened; its stream of events goes on from there.
EVENT_POSITION = "Gpuherd-Event-Position"


TEMPLATES = Path(__file__).parent / "templates"


# Invisible, or able to turn the text around them: nobody reads these, and names could lie with them.
_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})


_SHOWN_CONTROLS = frozenset("\n\t")


def visible(value: object) -> object:
    """Return text with everything invisible or commanding shown as an escape; our own markup stays."""
    if not isinstance(value, str) or isinstance(value, Markup) or (value.isascii() and value.isprintable()):
        return value
    return "".join(
        char
        if char in _SHOWN_CONTROLS or unicodedata.category(char) not in _HIDDEN
        else char.encode("unicode_escape").decode("ascii")
        for char in value
    )


def as_typed(value: object) -> Markup:
    """Return what somebody typed into a field exactly as it was, for that field."""
    return escape(str(value))


def coded(text: str) -> Markup:
    """Return a sentence in which what stands between backticks is code."""
    parts = [escape(visible(part)) for part in text.split("`")]
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if n % 2 and n < len(parts) - 1 else part
        for n, part in enumerate(parts)
    )


@cache
def environment() -> jinja2.Environment:
    """Return the templates, made at the first page."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        # At every place where a template shows something, so that none can be forgotten.
        finalize=visible,
    )
    made.filters.update(
        money=money,
        signed=signed,
        hourly=hourly,
        ago=ago,
        elapsed=elapsed,
        exact=exact,
        iso_time=iso_time,
        stamp=stamp,
        plain=plain,
        event_words=event_words,
        typed=as_typed,
        coded=coded,
    )
    made.globals.update(static=static_url, version=__version__, event_types=event_types())
    return made


def page(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **model: Any,
) -> Response:
    """Return a page for the signed-in caller, if there is one."""
    caller: Caller | None = request.scope.get("caller")
    session: Session | None = request.scope.get("session")
    scope = caller.scope if caller else None
    # Of a page that was asked for; one that answers a form is not live.
    position: int | None = getattr(request.state, "event_position", None)
    context = {
        "now": plane_of(request).clock.now(),
        "path": request.url.path,
        "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        "said": request.query_params.get("done", ""),
        "caller": caller,
        "event_position": "" if position is None else position,
        "form_token": session.form_token if session else "",
        "can_write": scope is not None and scope.includes(Scope.WRITE),
        "is_admin": scope is Scope.ADMIN,
        "nav": navigation(scope, request.url.path),
    }
    body = environment().get_template(template).render(context | model)
    told = {} if position is None else {EVENT_POSITION: str(position)}
    return Response(body, status_code=status, media_type="text/html", headers={**told, **(headers or {})})


def done(target: str, what: str) -> Response:
    """Send the browser to a page that says what was done; a reload there repeats nothing."""
    mark = "&" if "?" in target else "?"
    return Response(status_code=303, headers={"Location": f"{target}{mark}done={what}"})


async def domain_error(request: Request, error: Exception) -> Response:
    """Show one of our errors."""
    assert isinstance(error, GpuherdError)
    return _shown(request, problem_response.problem_of(error))


async def framework_error(request: Request, error: Exception) -> Response:
    """Show that there is no such page, or that it does not take this."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return _shown(request, problem_response.problem(404, "NOT_FOUND", "there is no page at this address"))
    return _shown(request, problem_response.problem(error.status_code, "HTTP_ERROR", str(error.detail)))


async def unexpected(request: Request, _: Exception) -> Response:
    """Show that it is our fault, and nothing of the inside."""
    return _shown(request, problem_response.unexpected())


def _shown(request: Request, problem: Refusal) -> Response:
    retry_after = problem.retry_after
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return page(
        request,
        "error.html",
        status=problem.status,
        headers=headers,
        problem=problem,
        request_id=current_request.get().request_id,
    )
