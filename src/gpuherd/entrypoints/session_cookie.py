"""What authentication needs to know of browsers.

Their session cookie, whether they want HTML, and the redirect to sign in.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Scope

COOKIE = "gpuherd_session"


# Browsers take this name only over TLS, from this very host, for all of it.
SECURE_COOKIE = f"__Host-{COOKIE}"


ACCEPT_ANYTHING = (b"", b"*/*")
_PLAIN_PATH = re.compile(r"/(?![/\\])[!-~]{0,500}")


def single_header(scope: Scope, name: bytes) -> bytes:
    """Return a header that came once; of two, none."""
    found = [value for key, value in scope["headers"] if key == name]
    return bytes(found[0]) if len(found) == 1 else b""


def cookie_of(scope: Scope) -> str:
    """Return the token in the cookie of the session, or nothing."""
    found: dict[str, str] = {}
    for key, value in scope["headers"]:
        if key == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                name, _, word = pair.strip().partition("=")
                found.setdefault(name, word)
    return found.get(SECURE_COOKIE) or found.get(COOKIE) or ""


def wants_html(scope: Scope) -> bool:
    """Return True if the client wants HTML; at `/` also one whose Accept header says nothing."""
    accepted = single_header(scope, b"accept")
    return (
        b"text/html" in accepted
        or is_refresh(scope)
        or (scope["path"] == "/" and accepted in ACCEPT_ANYTHING)
    )


def is_refresh(scope: Scope) -> bool:
    """Return True if a page that is open already asks for its newest state."""
    return single_header(scope, b"hx-request") == b"true"


def redirect_to_login(scope: Scope) -> Response:
    """Send a browser to the login page, and from there back to where it wanted to go."""
    where = scope["path"] if scope["method"] in ("GET", "HEAD") else "/"
    query = scope["query_string"].decode("latin-1")
    target = "/login" if where == "/" else f"/login?next={quote(where + ('?' + query if query else ''))}"
    if is_refresh(scope):
        return Response(status_code=401, headers={"HX-Redirect": "/login"})
    return Response(status_code=303, headers={"Location": target})


def safe_target(path: str) -> str:
    """Return a path on this server to go to; anything that could lead elsewhere becomes the overview."""
    return path if _PLAIN_PATH.fullmatch(path) else "/"
