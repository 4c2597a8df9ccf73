"""Turns templates and view models into pages. Whatever a stranger wrote comes out as plain, visible text."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from gpuherd import __version__
from gpuherd.domain.access.api_key import Scope
from gpuherd.domain.access.caller import Caller
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.web.static_files import static_url
from gpuherd.entrypoints.web.views.formatting import (
    ago,
    elapsed,
    event_words,
    exact,
    hourly,
    iso_time,
    money,
    plain,
    signed,
    stamp,
)
from gpuherd.entrypoints.web.views.navigation import event_types, navigation
from gpuherd.usecases.access.sessions import Session

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
