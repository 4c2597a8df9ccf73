"""What a reply means, what must answer, and when to look again."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.instance.health import (
    BODY_MAX_BYTES,
    EndpointHealth,
    EndpointStatus,
    Health,
    HealthCategory,
    HealthCheck,
    HealthStatus,
    after_round,
    begin_check,
    classify_reply,
    explain_health,
    missing_target,
    next_round,
    probe_targets,
    retry_wait_s,
    time_left_s,
    with_time_left,
)
from tests.domain.net.sample_pages import ERROR_PAGES, NORMAL_PAGES
from tests.support.fake_clock import START
from tests.support.strategies import moments
from tests.support.strategies import texts as any_texts

CHECK = HealthCheck()
HTML = {"content-type": "text/html"}
WEB = PortMapping(8080, "https://abc-8080.us-ca-6.example.com", "http")
JUPYTER = PortMapping(8888, "https://abc-8888.us-ca-6.example.com", "http")
SSH = PortMapping(22, "proxy.us-ca-6.example.com:32787", "tcp")
DB = PortMapping(9000, "proxy.us-ca-6.example.com:32788", "tcp")
MIDDLE = 0.5
jitters = st.floats(0, 1, exclude_max=True)


def seen(category: HealthCategory, port: PortMapping = WEB, at: datetime = START) -> EndpointHealth:
    return EndpointHealth.seen(port, category, "a reason", at)


def judged(
    check: HealthCheck, status: int, body: bytes = b"", headers: dict[str, str] = HTML
) -> HealthCategory:
    return classify_reply(check, status, headers, body)[0]


# Replies


def test_without_an_expectation_any_2xx_is_healthy(subtests: pytest.Subtests) -> None:
    for status, category in [
        *((status, "ok") for status in (200, 201, 204, 299)),
        *((status, "redirect") for status in (300, 301, 302, 303, 304, 307, 308)),
        *((status, "client_error") for status in (400, 401, 403, 404, 418, 429, 499)),
        *((status, "server_error") for status in (500, 501, 505, 520, 599)),
        *((status, "bad_gateway") for status in (502, 503, 504)),
        *((status, "unexpected_status") for status in (100, 101, 199, 600, 999)),
    ]:
        with subtests.test(status=status, category=category):
            found, detail = classify_reply(CHECK, status, {}, b"")
            assert found == category
            assert str(status) in detail


def test_an_expected_status_is_healthy_and_no_other(subtests: pytest.Subtests) -> None:
    for status, category in [
        (302, "ok"),
        (401, "ok"),
        (503, "ok"),
        (200, "unexpected_status"),
        (204, "unexpected_status"),
        (301, "redirect"),
        (404, "client_error"),
        (500, "server_error"),
        (502, "bad_gateway"),
    ]:
        with subtests.test(status=status, category=category):
            assert judged(replace(CHECK, expected_status=(302, 401, 503)), status) == category


def test_an_error_page_with_200_is_unhealthy(subtests: pytest.Subtests) -> None:
    for kind in list(ERROR_PAGES):
        with subtests.test(kind=kind):
            category, detail = classify_reply(CHECK, 200, HTML, ERROR_PAGES[kind].encode())
            assert category is HealthCategory.ERROR_PAGE
            assert "error page" in detail


def test_a_normal_page_with_200_is_healthy(subtests: pytest.Subtests) -> None:
    for kind in list(NORMAL_PAGES):
        with subtests.test(kind=kind):
            assert judged(CHECK, 200, NORMAL_PAGES[kind].encode()) is HealthCategory.OK


def test_an_error_page_stays_one_when_its_200_was_asked_for_by_number_or_its_text_is_expected() -> None:
    page = ERROR_PAGES["nginx 502"].encode()
    assert judged(replace(CHECK, expected_status=(200,)), 200, page) is HealthCategory.ERROR_PAGE
    assert judged(replace(CHECK, body_contains="nginx"), 200, page) is HealthCategory.ERROR_PAGE


def test_an_expected_error_may_look_like_one() -> None:
    page = ERROR_PAGES["nginx 503"].encode()
    assert judged(replace(CHECK, expected_status=(503,)), 503, page) is HealthCategory.OK


def test_a_page_that_goes_on_is_no_error_page() -> None:
    page = ERROR_PAGES["nginx 502"].encode()
    assert classify_reply(CHECK, 200, HTML, page, truncated=True)[0] is HealthCategory.OK


def test_the_expected_text_must_be_in_the_reply(subtests: pytest.Subtests) -> None:
    for body, category in [
        ("{'state': 'geöffnet ✓'}".encode(), "ok"),
        (b"", "unexpected_body"),
        ("GEÖFFNET ✓".encode(), "unexpected_body"),
        ("geöffnet ✓".encode("utf-16"), "unexpected_body"),
        (b" " * BODY_MAX_BYTES + "geöffnet ✓".encode(), "unexpected_body"),
    ]:
        with subtests.test(body=body, category=category):
            check = replace(CHECK, body_contains="geöffnet ✓")
            assert judged(check, 200, body, {"content-type": "application/json"}) == category


def test_the_status_counts_before_the_text() -> None:
    assert judged(replace(CHECK, body_contains="ok"), 500, b"ok") is HealthCategory.SERVER_ERROR


@given(st.integers(100, 999), st.text(max_size=50))
def test_a_verdict_repeats_nothing_of_the_reply(status: int, noise: str) -> None:
    body = f"<title>{noise} hunter2</title><h1>502 hunter2</h1>hunter2".encode(errors="replace")
    _, detail = classify_reply(CHECK, status, {"content-type": "text/html", "x": "hunter2"}, body)
    assert "hunter2" not in detail
    assert len(detail) <= 200 and detail.isascii() and detail.isprintable()


def test_only_a_blocked_target_is_hopeless() -> None:
    assert [it for it in HealthCategory if not it.retryable] == [HealthCategory.BLOCKED_TARGET]


# Targets


def test_what_must_answer(subtests: pytest.Subtests) -> None:
    for target_port, ports, expected in [
        (None, (SSH, WEB, JUPYTER), (WEB, JUPYTER)),
        (None, (SSH, DB), (SSH, DB)),
        (None, (), ()),
        (8888, (SSH, WEB, JUPYTER), (JUPYTER,)),
        (22, (SSH, WEB, JUPYTER), (SSH,)),
        (8081, (SSH, WEB, JUPYTER), ()),
        (None, (WEB, WEB), (WEB,)),
        (8080, (replace(DB, port=8080), WEB), (WEB,)),
        (None, (replace(WEB, type="HTTPS"),), (replace(WEB, type="HTTPS"),)),
        (None, (replace(WEB, type="udp"),), ()),
        (8080, (replace(WEB, type="udp"),), ()),
        (None, (replace(WEB, type="udp"), SSH), (SSH,)),
    ]:
        with subtests.test(target_port=target_port, ports=ports, expected=expected):
            assert probe_targets(replace(CHECK, target_port=target_port), ports) == expected


def test_a_broken_list_of_ports_does_not_keep_us_busy() -> None:
    assert len(probe_targets(CHECK, tuple(replace(WEB, port=n) for n in range(1, 60_000)))) == 50


def test_a_missing_port_has_a_name_and_a_reason() -> None:
    (endpoint,) = missing_target(replace(CHECK, target_port=8081), START)
    assert (endpoint.port, endpoint.status, endpoint.category) == (8081, "unhealthy", "no_such_port")
    assert "no port 8081" in (endpoint.error or "")
    assert missing_target(CHECK, START) == ()


# Rounds


def test_a_check_begins_with_all_its_endpoints_pending() -> None:
    health = begin_check(CHECK, (SSH, WEB, JUPYTER), START)
    assert (health.status, health.started_at, health.rounds) == (HealthStatus.IN_PROGRESS, START, 0)
    assert [(it.port, it.status, it.category) for it in health.endpoints] == [
        (8080, EndpointStatus.PENDING, None),
        (8888, EndpointStatus.PENDING, None),
    ]


def after_rounds(rounds: int, category: HealthCategory = HealthCategory.CONNECTION_REFUSED) -> Health:
    return replace(begin_check(CHECK, (WEB,), START), rounds=rounds, endpoints=(seen(category),))


def test_the_waits_double_from_the_ordered_delay_to_half_a_minute() -> None:
    latest = 1 - 1e-12
    waits = [next_round(CHECK, after_rounds(rounds), START, latest) for rounds in range(1, 8)]
    assert waits == pytest.approx([2, 4, 8, 16, 30, 30, 30])


@given(st.integers(1, 5000), jitters, st.integers(50, 30_000))
def test_jitter_picks_from_the_upper_half(failures: int, jitter: float, delay_ms: int) -> None:
    wait_s = retry_wait_s(replace(CHECK, retry_delay_ms=delay_ms), failures, jitter)
    whole_s = min(30.0, delay_ms / 1000 * 2.0 ** min(failures - 1, 100))
    assert whole_s / 2 <= wait_s <= whole_s


@pytest.mark.parametrize("jitter", [-0.1, 1.0, float("nan")])
def test_senseless_jitter_is_refused(jitter: float) -> None:
    with pytest.raises(ValueError):
        retry_wait_s(CHECK, 1, jitter)


@given(st.integers(1, 100), jitters, st.floats(0, 400), st.integers(1_000, 1_800_000))
def test_no_wait_goes_past_the_longest_wait(rounds: int, jitter: float, passed_s: float, max_ms: int) -> None:
    check = replace(CHECK, max_wait_ms=max_ms)
    now = START + timedelta(seconds=passed_s)
    wait_s = next_round(check, after_rounds(rounds), now, jitter)
    if passed_s > max_ms / 1000:
        assert wait_s is None
    if wait_s is not None:
        assert 0 < wait_s <= max_ms / 1000 - passed_s + 1e-5


def test_the_last_wait_ends_with_the_time() -> None:
    late = START + timedelta(seconds=299)
    assert next_round(CHECK, after_rounds(9), late, MIDDLE) == pytest.approx(1.0)
    assert next_round(CHECK, after_rounds(9), late + timedelta(seconds=0.99), MIDDLE) is None
    assert next_round(CHECK, after_rounds(9), late + timedelta(seconds=1), MIDDLE) is None


def test_rounds_end_at_last_for_any_clock_that_follows_the_waits() -> None:
    now, health, rounds = START, begin_check(CHECK, (WEB,), START), 0
    while not health.ended:
        health, wait_s = after_round(CHECK, health, (seen(HealthCategory.TIMEOUT),), now, MIDDLE)
        rounds += 1
        now += timedelta(seconds=wait_s or 0)
    assert health.status is HealthStatus.FAILED
    assert health.rounds == rounds < 20
    assert health.completed_at == START + timedelta(seconds=300)


def test_a_hopeless_endpoint_ends_the_check_at_once() -> None:
    endpoints = (seen(HealthCategory.OK, JUPYTER), seen(HealthCategory.BLOCKED_TARGET))
    health, wait_s = after_round(CHECK, begin_check(CHECK, (WEB,), START), endpoints, START, MIDDLE)
    assert (health.status, health.completed_at, wait_s) == (HealthStatus.FAILED, START, None)


def test_all_must_answer_in_the_same_round() -> None:
    begun, later = begin_check(CHECK, (WEB, JUPYTER), START), START + timedelta(seconds=3)
    half = (seen(HealthCategory.OK), seen(HealthCategory.BAD_GATEWAY, JUPYTER))
    health, wait_s = after_round(CHECK, begun, half, later, MIDDLE)
    assert (health.status, health.endpoints, health.completed_at) == (HealthStatus.IN_PROGRESS, half, None)
    assert wait_s == pytest.approx(1.5)
    whole = (seen(HealthCategory.OK), seen(HealthCategory.OK, JUPYTER))
    health, wait_s = after_round(CHECK, health, whole, later, MIDDLE)
    assert (health.status, health.endpoints, health.completed_at) == (HealthStatus.PASSED, whole, later)
    assert (health.started_at, health.rounds, wait_s) == (START, 2, None)


def test_nothing_to_look_at_is_no_success() -> None:
    health, wait_s = after_round(CHECK, begin_check(CHECK, (), START), (), START, MIDDLE)
    assert health.status is HealthStatus.IN_PROGRESS
    assert wait_s is not None
    health, wait_s = after_round(CHECK, health, (), START + timedelta(seconds=300), MIDDLE)
    assert (health.status, wait_s) == (HealthStatus.FAILED, None)
    assert explain_health(health) == "the machine shows no port that could be checked"


def test_the_time_left_is_never_more_than_was_ordered(subtests: pytest.Subtests) -> None:
    for passed_s, left_s in [(0, 300), (100, 200), (300, 0), (301, 0), (-5000, 300)]:
        with subtests.test(passed_s=passed_s, left_s=left_s):
            now = START + timedelta(seconds=passed_s)
            assert time_left_s(CHECK, begin_check(CHECK, (WEB,), START), now) == left_s
            assert time_left_s(CHECK, Health(), now) == 300


@pytest.mark.parametrize(
    ("timeout_ms", "left_s", "expected_ms"),
    [(10_000, 100, 10_000), (10_000, 4.5, 4_500), (10_000, 0, 1_000), (200, 0, 200)],
)
def test_a_look_fits_the_time_that_is_left(timeout_ms: int, left_s: float, expected_ms: int) -> None:
    check = replace(CHECK, timeout_ms=timeout_ms, path="/x")
    assert with_time_left(check, left_s) == replace(check, timeout_ms=expected_ms)


# What is told and kept


@given(st.text(max_size=400))
def test_an_error_is_always_safe_to_show(detail: str) -> None:
    error = EndpointHealth.seen(WEB, HealthCategory.TIMEOUT, detail, START).error
    assert error is not None
    assert len(error) <= 200 and error.isascii() and (error.isprintable() or not error)


def test_the_reason_names_the_first_port_and_counts_the_others() -> None:
    wrong = (
        seen(HealthCategory.OK, SSH),
        seen(HealthCategory.TIMEOUT),
        seen(HealthCategory.TIMEOUT, JUPYTER),
    )
    health = Health(HealthStatus.FAILED, START, START, wrong, 1)
    assert explain_health(health) == "port 8080: a reason (and 1 more)"
    assert explain_health(replace(health, endpoints=wrong[:2])) == "port 8080: a reason"
    assert explain_health(replace(health, status=HealthStatus.PASSED)) == "the health check passed"
    assert explain_health(begin_check(CHECK, (WEB,), START)) == "the health check has not looked yet"
    assert explain_health(Health()) == "the health check has not looked yet"


endpoints = st.builds(
    EndpointHealth,
    port=st.integers(1, 65535),
    endpoint=any_texts,
    type=any_texts,
    status=st.sampled_from(EndpointStatus),
    category=st.none() | st.sampled_from(HealthCategory),
    error=st.none() | any_texts,
    response_time_ms=st.none() | st.floats(0, 60_000),
    checked_at=st.none() | moments,
)
healths = st.builds(
    Health,
    status=st.sampled_from(HealthStatus),
    started_at=st.none() | moments,
    completed_at=st.none() | moments,
    endpoints=st.lists(endpoints, max_size=3).map(tuple),
    rounds=st.integers(0, 10_000),
)


@given(healths)
def test_what_is_stored_comes_back(health: Health) -> None:
    back = Health.from_doc(json.loads(json.dumps(health.as_doc())))
    assert back == health
    assert [type(it.category) for it in back.endpoints] == [type(it.category) for it in health.endpoints]
