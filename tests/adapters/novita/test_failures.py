"""What each reply proves: the table behind "surely not rented" and "may be rented"."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.adapters.novita import novita_failures
from gpuherd.adapters.novita.novita_call import read_reply
from gpuherd.adapters.novita.novita_failures import ResourceKind
from gpuherd.domain.errors import (
    CloudRefused,
    CloudTimeout,
    CloudUnavailable,
    KeyRefused,
    MachineGone,
    NotFound,
    OutcomeUnknown,
    OutOfStock,
    RateLimited,
)
from tests.adapters.novita.test_fields import JSON


def reply(status, reason="", message="", **body):
    problem = {"code": status, "reason": reason, "message": message, "metadata": {}, **body}
    return read_reply(status, json.dumps(problem).encode())


PAGE = b"<html><title>403 Forbidden</title></html>"

REFUSALS = [
    (400, "INSUFFICIENT_RESOURCE", OutOfStock, "RESOURCE_CONSTRAINTS"),
    (400, "CREATE_GPU_NUM_LIMIT", OutOfStock, "RESOURCE_CONSTRAINTS"),
    (400, "NODE_STATUS", OutOfStock, "RESOURCE_CONSTRAINTS"),
    (400, "BALANCE_NOT_ENOUGH", CloudRefused, "INSUFFICIENT_BALANCE"),
    (400, "EXPIRED_OR_BALANCE_NOT_ENOUGH", CloudRefused, "INSUFFICIENT_BALANCE"),
    (402, "", CloudRefused, "INSUFFICIENT_BALANCE"),
    (400, "CREATE_INSTANCE_LIMIT", CloudRefused, "QUOTA_EXCEEDED"),
    (401, "UNAUTHORIZED", KeyRefused, "AUTHENTICATION_FAILED"),
    (403, "FORBIDDEN", KeyRefused, "AUTHENTICATION_FAILED"),
    (400, "UNSUPPORTED_BILLING_MODE", CloudRefused, "CLOUD_REFUSED"),
    (400, "VALIDATOR_PARAM", CloudRefused, "CLOUD_REFUSED"),
    (409, "CONFLICT", CloudRefused, "CLOUD_REFUSED"),
    (422, "REQUEST", CloudRefused, "CLOUD_REFUSED"),
    (429, "RATE_LIMIT_EXCEEDED", RateLimited, "RATE_LIMIT_EXCEEDED"),
    (400, "RATE_LIMIT_EXCEEDED", RateLimited, "RATE_LIMIT_EXCEEDED"),
    # For a create this is about the product or the login, never about a machine.
    (404, "RESOURCE_NOT_FOUND", CloudRefused, "CLOUD_REFUSED"),
    (400, "RESOURCE_NOT_FOUND", CloudRefused, "CLOUD_REFUSED"),
]


def test_a_clear_no_to_a_create_has_its_own_error(subtests: pytest.Subtests) -> None:
    for status, reason, kind, code in REFUSALS:
        with subtests.test(status=status, reason=reason, kind=kind, code=code):
            error = novita_failures.failure_of_change(reply(status, reason, "because"), ResourceKind.ACCOUNT)
            assert error is not None and type(error) is kind
            assert error.code == code


def test_anything_else_leaves_it_open_whether_a_machine_was_rented(subtests: pytest.Subtests) -> None:
    for unclear in [
        read_reply(400, PAGE),
        read_reply(401, PAGE),
        read_reply(403, PAGE),
        read_reply(404, PAGE),
        read_reply(400, b""),
        read_reply(404, b""),
        read_reply(400, b"{}"),
        read_reply(400, b'{"reason": "", "message": ""}'),
        read_reply(400, b'{"reason": 7, "message": []}'),
        read_reply(400, b"[]"),
        read_reply(200, PAGE),
        read_reply(307, b""),
        read_reply(100, b""),
        reply(405, "REQUEST"),
        reply(408, "REQUEST_TIMEOUT"),
        reply(499, "REQUEST"),
        reply(500, "UNKNOWN"),
        reply(500, "INSUFFICIENT_RESOURCE"),
        reply(502),
        reply(503, "INSUFFICIENT_RESOURCE"),
        reply(504),
    ]:
        with subtests.test(unclear=unclear):
            error = novita_failures.failure_of_change(unclear, ResourceKind.ACCOUNT)
            assert isinstance(error, OutcomeUnknown)
            assert error.details["status"] == unclear.status


def test_too_many_is_a_clear_no_only_by_assumption():
    for throttled in (reply(429, "RATE_LIMIT_EXCEEDED"), read_reply(429, PAGE, 7.0), read_reply(429, b"")):
        trusted = novita_failures.failure_of_change(throttled, ResourceKind.ACCOUNT)
        assert isinstance(trusted, RateLimited)
        assert trusted.retry_after_s == throttled.retry_after_s
        distrusted = novita_failures.failure_of_change(throttled, ResourceKind.ACCOUNT, trust_429=False)
        assert isinstance(distrusted, OutcomeUnknown)


def test_a_change_is_accepted_with_or_without_a_body(subtests: pytest.Subtests) -> None:
    for status, raw in product(
        [200, 201, 204], [b"", b"null", b"{}", b'{"instanceId": "a", "state": "toStart"}']
    ):
        with subtests.test(status=status, raw=raw):
            assert novita_failures.failure_of_change(read_reply(status, raw), ResourceKind.MACHINE) is None


@pytest.mark.parametrize(
    "gone",
    [
        reply(404, "RESOURCE_NOT_FOUND"),
        reply(400, "RESOURCE_NOT_FOUND"),
        reply(404, "", "no"),
        reply(400, "", "instance not found"),
        read_reply(404, b""),
    ],
)
def test_a_machine_is_gone_by_status_or_by_reason(gone):
    assert isinstance(novita_failures.failure_of_change(gone, ResourceKind.MACHINE), MachineGone)
    assert isinstance(novita_failures.failure_of_read(gone, ResourceKind.MACHINE), MachineGone)


def test_a_page_of_some_gateway_does_not_prove_that_a_machine_is_gone():
    error = novita_failures.failure_of_read(read_reply(404, PAGE), ResourceKind.MACHINE)
    assert type(error) is CloudUnavailable
    assert isinstance(
        novita_failures.failure_of_change(read_reply(404, PAGE), ResourceKind.MACHINE), OutcomeUnknown
    )


def test_a_page_of_some_gateway_does_not_condemn_the_key():
    assert (
        type(novita_failures.failure_of_read(read_reply(403, PAGE), ResourceKind.ACCOUNT)) is CloudUnavailable
    )
    assert isinstance(
        novita_failures.failure_of_read(read_reply(401, PAGE), ResourceKind.ACCOUNT), KeyRefused
    )


def test_a_start_in_the_wrong_state_is_told_apart():
    error = novita_failures.failure_of_change(reply(400, "", "Invalid state change"), ResourceKind.MACHINE)
    assert isinstance(error, CloudRefused)
    assert error.code == "INVALID_STATE_CHANGE"


@pytest.mark.parametrize(
    "missing",
    [
        reply(400, "TEMPLATE_NOT_FOUND"),
        reply(400, "TEMPLATE_IS_PRIVATE"),
        reply(400, "", "template not found"),
        reply(404, "RESOURCE_NOT_FOUND"),
    ],
)
def test_a_template_that_is_not_there_is_not_found(missing):
    error = novita_failures.failure_of_read(missing, ResourceKind.TEMPLATE)
    assert isinstance(error, NotFound)
    assert error.code == "TEMPLATE_NOT_FOUND"


def test_a_path_that_is_not_there_is_never_a_machine_that_is_gone():
    assert (
        type(novita_failures.failure_of_read(reply(404, "RESOURCE_NOT_FOUND"), ResourceKind.ACCOUNT))
        is CloudRefused
    )


@pytest.mark.parametrize(
    ("status", "kind"), [(500, CloudUnavailable), (504, CloudTimeout), (408, CloudTimeout)]
)
def test_a_read_that_the_other_side_could_not_serve_may_be_repeated(status, kind):
    assert type(novita_failures.failure_of_read(reply(status, "UNKNOWN"), ResourceKind.ACCOUNT)) is kind


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"reason": "INSUFFICIENT_RESOURCE", "code": 400}, "INSUFFICIENT_RESOURCE"),
        ({"code": "INSUFFICIENT_RESOURCE", "message": "x"}, "INSUFFICIENT_RESOURCE"),
        ({"code": 400, "message": "rpc error: INSUFFICIENT_RESOURCE, try later"}, "INSUFFICIENT_RESOURCE"),
        ({"error": "BALANCE_NOT_ENOUGH"}, "BALANCE_NOT_ENOUGH"),
        ({"message": "SOMETHING_ELSE happened"}, ""),
        ({"code": 400}, ""),
    ],
)
def test_the_reason_is_found_wherever_they_put_it(body, reason):
    problem = novita_failures.read_problem(body)
    assert problem is not None
    assert problem.reason == reason


def test_their_words_are_quoted_short_and_without_control_characters():
    error = novita_failures.failure_of_change(
        reply(400, "REQUEST", "bad\x1b[31m\r\n" + "x" * 5000), ResourceKind.ACCOUNT
    )
    assert isinstance(error, CloudRefused)
    assert error.message.isprintable()
    assert len(error.message) < 400
    assert "REQUEST" in error.message


@given(st.integers(100, 599), JSON, st.sampled_from(ResourceKind))
def test_every_reply_has_a_verdict_and_only_success_has_none(status, value, about):
    any_reply = read_reply(status, json.dumps(value).encode())
    changed = novita_failures.failure_of_change(any_reply, about)
    looked = novita_failures.failure_of_read(any_reply, about)
    if not 200 <= status < 300:
        assert changed is not None
        assert looked is not None
    if status >= 500:
        assert isinstance(changed, OutcomeUnknown)
    assert not isinstance(looked, OutcomeUnknown)
