"""The order of a health check: its limits, its defaults, and a problem for each thing that is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.client.wish import body_of
from gpuherd.contract.lease_models import HealthCheckBody
from gpuherd.contract.operation_models import StartBody
from gpuherd.domain.errors import InvalidRequest
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.entrypoints.body_problems import validate_body
from gpuherd.entrypoints.problem_response import problem_of
from gpuherd.usecases.instances.launch_spec_from_body import health_check_of
from gpuherd.usecases.views.instance_view import describe_health_check

LIMITS = {
    "targetPort": (1, 65535),
    "timeoutMs": (100, 60_000),
    "retryAttempts": (0, 10),
    "retryDelayMs": (50, 30_000),
    "maxWaitTimeMs": (1_000, 1_800_000),
    "expectedStatus": (200, 599),
}
FIELDS = {
    "targetPort": "target_port",
    "timeoutMs": "timeout_ms",
    "retryAttempts": "retry_attempts",
    "retryDelayMs": "retry_delay_ms",
    "maxWaitTimeMs": "max_wait_ms",
}

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=50)
checks = st.builds(
    HealthCheck,
    target_port=st.none() | st.integers(1, 65535),
    path=st.from_regex(r"/[a-z0-9_%/-]{0,20}(\?[a-z0-9=&]{0,9})?", fullmatch=True),
    timeout_ms=st.integers(100, 60_000),
    retry_attempts=st.integers(0, 10),
    retry_delay_ms=st.integers(50, 30_000),
    max_wait_ms=st.integers(1_000, 1_800_000),
    expected_status=st.none()
    | st.sets(st.integers(200, 599), min_size=1, max_size=20).map(lambda them: tuple(sorted(them))),
    body_contains=st.none() | texts,
)


def ordered(body: Any, field: str = "healthCheck") -> HealthCheck:
    check = health_check_of(validate_body(StartBody, {field: body}).check)
    assert check is not None
    return check


def parse(**body: Any) -> HealthCheck:
    return ordered(body)


def problems_of(body: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidRequest) as caught:
        ordered(body)
    return [(problem.field, problem.code) for problem in caught.value.problems]


def test_an_empty_order_has_the_defaults_of_the_contract() -> None:
    assert parse() == HealthCheck(None, "/", 10_000, 3, 2_000, 300_000, None, None)


def test_everything_can_be_ordered() -> None:
    check = parse(
        targetPort=8080,
        path="/health?full=1",
        timeoutMs=500,
        retryAttempts=0,
        retryDelayMs=50,
        maxWaitTimeMs=1_000,
        expectedStatus=[302, 200, 302],
        bodyContains="bereit ✓\n",
    )
    assert check == HealthCheck(8080, "/health?full=1", 500, 0, 50, 1_000, (200, 302), "bereit ✓\n")


def test_one_status_needs_no_list() -> None:
    assert parse(expectedStatus=204).expected_status == (204,)


@given(checks)
def test_what_is_shown_can_be_ordered_again(check: HealthCheck) -> None:
    assert ordered(json.loads(json.dumps(describe_health_check(check).model_dump(mode="json")))) == check


@given(checks)
def test_what_is_stored_comes_back(check: HealthCheck) -> None:
    assert HealthCheck.from_doc(json.loads(json.dumps(check.as_doc()))) == check


@pytest.mark.parametrize("key", list(LIMITS))
def test_numbers_have_limits(key: str) -> None:
    least, most = LIMITS[key]
    for good in (least, most):
        check = parse(**{key: good})
        assert check.expected_status == (good,) if key not in FIELDS else getattr(check, FIELDS[key]) == good
    for bad in (least - 1, most + 1, -1, 10**30):
        assert problems_of({key: bad}) == [(f"healthCheck.{key}", "INVALID_HEALTH_CHECK")]


@pytest.mark.parametrize("key", list(LIMITS))
@pytest.mark.parametrize("value", [True, False, "300", 300.0, float("nan"), {}, "", [[]]])
def test_numbers_are_numbers(key: str, value: Any) -> None:
    assert problems_of({key: value}) == [(f"healthCheck.{key}", "INVALID_HEALTH_CHECK")]


@pytest.mark.parametrize("key", ["path", "timeoutMs", "retryAttempts", "retryDelayMs", "maxWaitTimeMs"])
def test_null_is_no_value_where_there_is_a_default(key: str) -> None:
    assert problems_of({key: None}) == [(f"healthCheck.{key}", "INVALID_HEALTH_CHECK")]


def test_null_means_any_where_nothing_is_the_default() -> None:
    assert parse(targetPort=None, expectedStatus=None, bodyContains=None) == HealthCheck()


@pytest.mark.parametrize(
    "path", ["/", "/health", "/a/b.c/", "/a%20b", "/?q=/../x", "/ü", "//x", "/...", "/" + "a" * 1023]
)
def test_a_path_may_be(path: str) -> None:
    assert parse(path=path).path == path


@pytest.mark.parametrize(
    "path",
    [
        *("", "health", "http://evil.example/", "@evil.example", "?x", 7, True, ["/"], "/" + "a" * 1024),
        *("/a b", "/a\tb", "/a\r\nX: 1", "/\0", "/\x7f", "/\\evil", "/a#b", "/\u2028", "/\ud800", "/\u200b"),
        *("/..", "/a/../b", "/./a", "/%2e%2e/a", "/a/.%2E/b", "/a%2f..%2fb", "/%5c..%5ca"),
    ],
)
def test_a_path_may_not_be(path: Any) -> None:
    assert problems_of({"path": path}) == [("healthCheck.path", "INVALID_HEALTH_CHECK")]


@pytest.mark.parametrize("statuses", [[], [200] * 21, [200, "204"], [True], [199], [600], "2xx", {"a": 1}])
def test_statuses_are_a_short_list_of_numbers(statuses: Any) -> None:
    assert problems_of({"expectedStatus": statuses}) == [
        ("healthCheck.expectedStatus", "INVALID_HEALTH_CHECK")
    ]


@pytest.mark.parametrize("text", ["", 1, ["x"], "a" * 1001, "a\0b", "\x1b[2J", "\ud800"])
def test_the_expected_text_is_a_text(text: Any) -> None:
    assert problems_of({"bodyContains": text}) == [("healthCheck.bodyContains", "INVALID_HEALTH_CHECK")]


@pytest.mark.parametrize("body", [True, 1, "x", [], [{}]])
def test_the_order_is_an_object(body: Any) -> None:
    assert problems_of(body) == [("healthCheck", "INVALID_HEALTH_CHECK")]


def test_every_problem_is_told_at_once() -> None:
    assert problems_of({"timeoutMs": 1, "path": "x", "timeoutMS": 5, "retryDelayMs": 1}) == [
        ("healthCheck.path", "INVALID_HEALTH_CHECK"),
        ("healthCheck.timeoutMs", "INVALID_HEALTH_CHECK"),
        ("healthCheck.retryDelayMs", "INVALID_HEALTH_CHECK"),
        ("healthCheck.timeoutMS", "UNKNOWN_FIELD"),
    ]


def test_problems_repeat_no_value_and_no_key_that_is_not_fit_to_print() -> None:
    body = {"path": "hunter2", "bodyContains": "hunter2\0", "\x1b[2J\n" + "k" * 500: "hunter2"}
    with pytest.raises(InvalidRequest) as caught:
        ordered(body, "healthCheckConfig")
    assert "hunter2" not in repr(caught.value.problems)
    assert all(problem.field.startswith("healthCheckConfig.") for problem in caught.value.problems)
    assert all(problem.message.isprintable() for problem in caught.value.problems)
    shown = problem_of(caught.value).errors or ()
    assert all(len(it.message) <= 300 and len(it.field) <= 100 for it in shown)


def test_a_body_full_of_unknown_keys_gets_a_short_answer() -> None:
    with pytest.raises(InvalidRequest) as caught:
        ordered({f"k{n}": n for n in range(10_000)})
    shown = [(it.field, it.code) for it in problem_of(caught.value).errors or ()]
    assert shown == [(f"healthCheck.k{n}", "UNKNOWN_FIELD") for n in range(50)]


def test_the_client_sends_only_what_was_set() -> None:
    check = HealthCheckBody(target_port=80, expected_status=(200, 204))
    assert body_of(check) == {"targetPort": 80, "expectedStatus": [200, 204]}
