"""Error pages are told from pages that talk about errors, and no page is slow to read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.instance.proxy_error_page import (
    PAGE_MAX_BYTES,
    PageText,
    error_page,
    read_page,
)
from tests.domain.net.sample_pages import ERROR_PAGES, GATEWAY_ERRORS, MENTIONS, NORMAL_PAGES

HTML = "text/html; charset=utf-8"


def test_the_tables_are_as_long_as_they_were_promised_to_be() -> None:
    assert len(ERROR_PAGES) >= 60
    assert len(NORMAL_PAGES) >= 200


@pytest.mark.proves("F44")
def test_an_error_page_is_known(subtests: pytest.Subtests) -> None:
    for kind in list(ERROR_PAGES):
        with subtests.test(kind=kind):
            name = error_page(HTML, ERROR_PAGES[kind].encode())
            assert name is not None
            assert name.isascii() and name.isprintable() and len(name) < 100


@pytest.mark.proves("F44")
def test_a_normal_page_may_mention_errors(subtests: pytest.Subtests) -> None:
    for kind in list(NORMAL_PAGES):
        with subtests.test(kind=kind):
            assert error_page(HTML, NORMAL_PAGES[kind].encode()) is None


def test_the_error_has_a_name() -> None:
    assert error_page(HTML, ERROR_PAGES["nginx 502"].encode()) == "502 bad gateway"
    assert error_page(HTML, ERROR_PAGES["cloudflare 521"].encode()) == "521 web server is down"
    assert error_page(HTML, ERROR_PAGES["gunicorn"].encode()) == "internal server error"
    assert error_page(HTML, ERROR_PAGES["cloudfront"].encode()) == "error: the request could not be satisfied"
    assert error_page(HTML, ERROR_PAGES["no phrase"].encode()) == "error 502"


def test_only_html_is_judged(subtests: pytest.Subtests) -> None:
    for content_type, judged in [
        ("text/html", True),
        ("TEXT/HTML ; charset=gbk", True),
        ("application/xhtml+xml", True),
        ("", True),
        ("text/plain", False),
        ("application/json", False),
        ("text/htmlx", False),
        ("application/octet-stream", False),
    ]:
        with subtests.test(content_type=content_type, judged=judged):
            assert (error_page(content_type, ERROR_PAGES["nginx 502"].encode()) is not None) is judged


def test_a_page_too_large_for_an_error_is_not_judged() -> None:
    page = b"<title>502 Bad Gateway</title>"
    assert error_page(HTML, page.ljust(PAGE_MAX_BYTES)) is not None
    assert error_page(HTML, page.ljust(PAGE_MAX_BYTES + 1)) is None


def test_what_is_no_utf_8_is_still_read() -> None:
    assert error_page(HTML, b"<p>\xff\xfe\xb0</p><title>502 Bad Gateway</title>") == "502 bad gateway"


def test_digits_of_other_scripts_are_no_status() -> None:
    assert error_page(HTML, "<title>5０２ Bad Gateway</title>".encode()) is None


def test_a_page_is_read_as_a_reader_sees_it() -> None:
    html = (
        "<TITLE>A &amp; B</TITLE><h1>One <b>Two</b></h1><h1>Three</h1><script>x</script> 1 < 2 <!-- y --> end"
    )
    assert read_page(html) == PageText("a & b", "one two", "one two three 1 < 2 end")


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
harmless = words.filter(lambda text: "<" not in text)
mentions = st.sampled_from(MENTIONS)


@given(harmless, st.lists(st.tuples(st.sampled_from(["p", "li", "h2", "td", "pre"]), mentions, harmless)))
def test_mentions_in_the_text_of_a_titled_page_are_harmless(
    start: str, parts: list[tuple[str, str, str]]
) -> None:
    text = "".join(f"<{tag}>{mention} {rest}</{tag}>" for tag, mention, rest in parts)
    page = f"<html><head><title>My program</title></head><body><h1>Hello</h1>{start}{text}</body></html>"
    assert error_page(HTML, page.encode()) is None


@given(st.sampled_from(["How to fix", "Why", "About", "Log:", "No more", "100 x"]), mentions, st.booleans())
def test_a_headline_that_says_more_is_harmless(start: str, mention: str, titled: bool) -> None:
    tag = "title" if titled else "h1"
    assert error_page(HTML, f"<{tag}>{start} {mention}</{tag}>".encode()) is None


spaces = st.text(st.sampled_from(" \t\r\n"), max_size=3)


@given(
    st.sampled_from(list(GATEWAY_ERRORS.items())),
    st.sampled_from(["title", "h1", "TITLE", "H1"]),
    st.sampled_from([" ", ": ", " - ", " – "]),
    st.sampled_from(["", "Error ", "HTTP ", "HTTP Error ", "HTTP Status ", "app.example.com | "]),
    st.sampled_from([str.lower, str.upper, str.title]),
    spaces,
    st.sampled_from(["", " class='x'", ' data-x="a > b"']),
)
def test_an_error_is_known_in_every_dress(
    error: tuple[int, str], tag: str, between: str, before: str, dress: object, blank: str, attributes: str
) -> None:
    assert callable(dress)
    line = dress(f"{before}{error[0]}{between}{error[1]}")
    page = f"<html>{blank}<{tag}{attributes}>{blank}{line}{blank}</{tag}>{blank}</html>"
    assert error_page(HTML, page.encode()) is not None


@given(st.binary(max_size=300))
def test_no_bytes_are_too_odd(body: bytes) -> None:
    error_page(HTML, body)


@given(
    st.lists(
        st.sampled_from(
            ["<", ">", "<!--", "-->", "<h1", "</h1", "<title", "'", '"', "<script>", "/", "&#", "5"]
        ),
        max_size=40,
    )
)
def test_no_markup_is_too_broken(parts: list[str]) -> None:
    page = read_page("".join(parts))
    assert len(page.text) <= sum(map(len, parts)) * 2


# A reader that looks back would need minutes for these.
def test_the_worst_pages_are_read_in_one_pass(subtests: pytest.Subtests) -> None:
    for piece in [
        "<",
        "<a",
        "<a ",
        "<a '",
        '<a "',
        "<!--",
        "<script",
        "<script>",
        "<title>",
        "<h1>",
        "</h1>",
        "&",
        "a.",
    ]:
        with subtests.test(piece=piece):
            page = piece * (PAGE_MAX_BYTES // len(piece))
            assert error_page(HTML, page.encode()) is None
            assert error_page(HTML, f"<title>{page[:-20]}".encode()) is None
