"""JSON replies: what they say about themselves is what the framework would say."""

from __future__ import annotations

import pytest
from starlette.responses import Response

from gpuherd.entrypoints.use_case_access import bytes_reply


@pytest.mark.parametrize("headers", [None, {}, {"Location": "/api/instances/ü", "X-Wait-Timed-Out": "true"}])
@pytest.mark.parametrize("body", [b"", b"{}", b"x" * 100_000])
def test_a_reply_has_the_headers_that_the_framework_would_give_it(
    body: bytes, headers: dict[str, str] | None
) -> None:
    ours = bytes_reply(body, headers=headers)
    theirs = Response(body, media_type="application/json", headers=headers)
    assert sorted(ours.raw_headers) == sorted(theirs.raw_headers)
    assert (ours.body, ours.status_code, ours.background) == (body, 200, None)
    assert ours.headers["content-type"] == "application/json", "the framework can still look at them"
