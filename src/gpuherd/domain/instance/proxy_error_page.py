"""Recognizes the error pages of proxies and servers.

Only headlines count: the title, the first heading, or the whole text of a page without either, and only if
they contain nothing but the error. A status with its phrase in the title is proof. Weaker signs, such as a
phrase without a number, count only on a page with little text, because a handbook may have the same headline.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from http import HTTPStatus

PAGE_MAX_BYTES = 64 * 1024
_HEADLINE_MAX_CHARS = 150
_SHORT_MAX_CHARS = 800
_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml", ""})


# What may follow a status: the standard's phrases, and those of nginx, Apache, Varnish, IIS, Cloudflare…
_PHRASES = frozenset(status.phrase.lower() for status in HTTPStatus if status >= 400) | {
    "a timeout occurred",
    "application error",
    "authorization required",
    "backend fetch failed",
    "bad gateway error",
    "connection timed out",
    "gateway time-out",
    "gateway timeout error",
    "guru meditation",
    "internal error",
    "invalid ssl certificate",
    "maximum threads for service reached",
    "origin dns error",
    "origin is unreachable",
    "page not found",
    "proxy error",
    "request time-out",
    "server error",
    "server hangup",
    "service not available",
    "service temporarily unavailable",
    "service unavailable error",
    "ssl handshake failed",
    "temporarily unavailable",
    "the service is unavailable",
    "this page could not be found",
    "too many connections",
    "upstream unavailable",
    "we're sorry, but something went wrong",
    "web server is down",
    "web server is returning an unknown error",
    "web server received an invalid response while acting as a gateway or proxy server",
}


# Headlines without a status.
_HEADLINES_WITHOUT_STATUS = frozenset(
    {
        "application error",
        "bad gateway",
        "error: server error",
        "error: the request could not be satisfied",
        "error: the requested url could not be retrieved",
        "gateway time-out",
        "gateway timeout",
        "internal server error",
        "no healthy upstream",
        "proxy error",
        "server error",
        "service temporarily unavailable",
        "service unavailable",
        "upstream request timeout",
        "whitelabel error page",
    }
)


# Envoy adds varying reasons to this one.
_ENVOY_HEADLINE = "upstream connect error or disconnect/reset before headers"


# "502 Bad Gateway", "Error 502: Bad gateway", "HTTP Status 502 – Bad Gateway", "app.example | 502: …".
_STATUS_FIRST = re.compile(
    r"(?:[\w.-]+\.\w+ \| |iis [\d.]+ detailed error - )?(?P<mark>(?:http )?(?:status |error )?(?:code )?)"
    r"[:#]? ?(?P<code>[45][0-9]{2})(?:\.[0-9]{1,3})?(?P<phrase>(?:[ :|–—-].*)?)"
)


# "Server Error (500)".
_STATUS_LAST = re.compile(r"(?P<phrase>[^()]+?) ?\((?:error )?(?P<code>[45][0-9]{2})\)")


_TAG = re.compile(r"<(?:!--|(/?)([a-z][a-z0-9]*))")
_TAG_END = re.compile(r"""(?:[^"'>]++|"[^"]*+"|'[^']*+')*+>""")


# The content of these tags is not markup of the page.
_RAW_TEXT_TAGS = frozenset(
    {"iframe", "noscript", "script", "style", "svg", "template", "textarea", "title", "xmp"}
)


@dataclass(frozen=True)
class PageText:
    """What a reader sees first, in lower case and with single spaces."""

    title: str
    heading: str
    text: str


def error_page(content_type: str, body: bytes) -> str | None:
    """Return the error's name, such as "502 bad gateway"; None if the body is no error page."""
    if content_type.partition(";")[0].strip().lower() not in _HTML_TYPES or len(body) > PAGE_MAX_BYTES:
        return None
    page = read_page(body.decode("utf-8", "replace"))
    if name := _with_status(page.title):
        return name
    if len(page.text) > _SHORT_MAX_CHARS:
        return None
    alone = "" if page.title or page.heading else page.text
    if alone.startswith(_ENVOY_HEADLINE):
        return _ENVOY_HEADLINE
    names = (
        _with_status(line) or _without_phrase_or_status(line) for line in (page.title, page.heading, alone)
    )
    return next(filter(None, names), None)


def read_page(html: str) -> PageText:
    """Parse a page in one pass without backtracking, so that no page is slow to parse."""
    html = html.lower()
    pieces: list[str] = []
    title = heading = ""
    heading_from: int | None = None
    place = 0
    while tag := _TAG.search(html, place):
        pieces.append(html[place : tag.start()])
        closing, name = tag[1], tag[2]
        if name is None:
            # From within its own dashes: "<!-->" is a whole comment.
            place = _past(html, "-->", tag.end() - 2)
            continue
        end = _TAG_END.match(html, tag.end())
        place = end.end() if end else len(html)
        if name in _RAW_TEXT_TAGS and not closing:
            inside, place = place, _before(html, f"</{name}", place)
            title = title or (_line(html[inside:place]) if name == "title" else "")
        elif name == "h1" and not heading:
            if closing and heading_from is not None:
                heading = _line(" ".join(pieces[heading_from:]))
            heading_from = None if closing else len(pieces)
    pieces.append(html[place:])
    return PageText(title, heading, " ".join(" ".join(pieces).split()))


def _past(text: str, mark: str, start: int) -> int:
    found = text.find(mark, start)
    return len(text) if found < 0 else found + len(mark)


def _before(text: str, mark: str, start: int) -> int:
    found = text.find(mark, start)
    return len(text) if found < 0 else found


def _line(text: str) -> str:
    return " ".join(unescape(text).split())


def _with_status(line: str) -> str | None:
    """Return status and phrase if the line contains nothing else."""
    if len(line) > _HEADLINE_MAX_CHARS:
        return None
    match = _STATUS_FIRST.fullmatch(line) or _STATUS_LAST.fullmatch(line)
    phrase = _trimmed(match["phrase"]) if match else ""
    return f"{match['code']} {phrase}" if match and phrase in _PHRASES else None


def _without_phrase_or_status(line: str) -> str | None:
    """Return the error in a line that lacks the phrase ("Error 502", "502 ERROR") or the status."""
    if len(line) > _HEADLINE_MAX_CHARS:
        return None
    if _trimmed(line) in _HEADLINES_WITHOUT_STATUS:
        return _trimmed(line)
    match = _STATUS_FIRST.fullmatch(line)
    phrase = _trimmed(match["phrase"]) if match else ""
    if match and ((match["mark"] and not phrase) or phrase == "error"):
        return f"error {match['code']}"
    return None


def _trimmed(phrase: str) -> str:
    # Google's pages end in "!!1".
    return phrase.removesuffix("!!1").strip(" :|–—-.!()").replace("’", "'")
