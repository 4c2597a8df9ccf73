"""Each refusal is the error that says what to do, with all that the server told."""

from __future__ import annotations

import pickle

import pytest

from gpuherd.client.client_errors import (
    ApiError,
    Conflict,
    ConnectionFailed,
    FieldError,
    Forbidden,
    GpuherdError,
    InstanceFailed,
    InvalidRequest,
    NoCapacity,
    NotFound,
    PrewarmFailed,
    PrewarmTimedOut,
    SecretLost,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnexpectedReply,
    WaitTimedOut,
)
from gpuherd.contract.catalogue_models import Prewarm
from gpuherd.contract.instance_models import Instance
from tests.client.support.server import AnyClient, FakeReply, FakeServer, details, problem


def look(herd: object) -> object:
    return herd.instances.get("train-1")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "VALIDATION_ERROR", InvalidRequest),
        (401, "UNAUTHORIZED", Unauthorized),
        (403, "FORBIDDEN", Forbidden),
        (404, "INSTANCE_NOT_FOUND", NotFound),
        (405, "METHOD_NOT_ALLOWED", ApiError),
        (409, "AMBIGUOUS_NAME", Conflict),
        (409, "NO_OPTIMAL_PRODUCT_ANY_REGION", NoCapacity),
        (413, "BODY_TOO_LARGE", InvalidRequest),
        (422, "IDEMPOTENCY_KEY_REUSED", InvalidRequest),
        (429, "QUOTA_EXCEEDED", TooManyRequests),
        (500, "INTERNAL_ERROR", Unavailable),
        (504, "", Unavailable),
    ],
)
async def test_a_refusal_is_named_for_what_can_be_done(
    call: AnyClient, server: FakeServer, status: int, code: str, kind: type[ApiError]
) -> None:
    server.script(problem(status, code))
    with pytest.raises(ApiError) as caught:
        await call(look)
    assert type(caught.value) is kind
    assert caught.value.status == status


async def test_everything_that_the_server_tells_is_in_the_error(call: AnyClient, server: FakeServer) -> None:
    errors = [{"field": "gpuNum", "code": "INVALID_GPU_NUM", "message": "gpuNum: at most 8"}, "odd"]
    server.script(
        problem(
            400,
            "INVALID_GPU_NUM",
            "the request is not valid",
            errors=errors,
            requestId="req_7",
            retryAfter=3,
            details={"status": "exited"},
        )
    )
    with pytest.raises(InvalidRequest) as caught:
        await call(look)
    it = caught.value
    assert (it.status, it.code, it.detail) == (400, "INVALID_GPU_NUM", "the request is not valid")
    assert (it.title, it.is_temporary) == ("no", False)
    assert it.errors == (FieldError("gpuNum", "INVALID_GPU_NUM", "gpuNum: at most 8"),)
    assert (it.request_id, it.retry_after_s, it.details) == ("req_7", 3, {"status": "exited"})
    assert str(it) == (
        "the request is not valid; gpuNum: at most 8 (INVALID_GPU_NUM, HTTP 400, request req_7)"
    )


async def test_the_message_says_what_to_do(call: AnyClient, server: FakeServer) -> None:
    server.script(problem(401, "UNAUTHORIZED", "this key is not known"))
    with pytest.raises(Unauthorized, match="GPUHERD_API_KEY"):
        await call(look)


@pytest.mark.parametrize(
    "answer", [FakeReply(b"<html>hello"), FakeReply([1]), FakeReply({}), FakeReply({"id": None})]
)
async def test_what_is_not_gpuherd_is_said_to_be_so(
    call: AnyClient, server: FakeServer, answer: FakeReply
) -> None:
    server.script(answer)
    with pytest.raises(UnexpectedReply):
        await call(look)


async def test_a_refusal_by_somebody_else_is_still_a_refusal(call: AnyClient, server: FakeServer) -> None:
    server.script(FakeReply(b"<h1>Not Found</h1>", 404))
    with pytest.raises(NotFound, match="no document of gpuherd"):
        await call(look)


INSTANCE = Instance.of(details("failed"))
PREWARM = Prewarm.of({"id": "p1", "imageUrl": "a:1", "region": "R", "state": "failed", "reasons": ["no"]})


@pytest.mark.parametrize(
    "error",
    [
        ConnectionFailed("http://x", "connection refused", sent=True),
        NotFound(404, "INSTANCE_NOT_FOUND", "no such instance", request_id="req_1"),
        InstanceFailed(INSTANCE, "ready"),
        WaitTimedOut(INSTANCE, "ready", 5),
        SecretLost("key", "k1"),
        PrewarmFailed(PREWARM),
        PrewarmTimedOut("p1", PREWARM, 5.0),
    ],
)
def test_an_error_survives_the_way_to_another_process(error: GpuherdError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__
