"""The meter: what it counts, under which labels, and that no label can make it grow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from gpuherd.adapters import prometheus_meter
from gpuherd.adapters.prometheus_meter import NOT_SENT_OUTCOMES, OTHER, PrometheusMeter
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.ports.telemetry_port import Meter
from tests.support.scraping import Scrape, read_page


@pytest.fixture
def meter() -> PrometheusMeter:
    return PrometheusMeter(CollectorRegistry())


def shown(meter: PrometheusMeter) -> Scrape:
    return read_page(generate_latest(meter.registry))


def test_a_request_is_counted_by_template_method_and_status_and_timed_without_the_status(
    meter: PrometheusMeter,
) -> None:
    route = "/api/instances/{ref}"
    meter.request(route, "GET", 200, 0.004)
    meter.request(route, "GET", 404, 0.2)
    page = shown(meter)
    assert page.value("gpuherd_http_requests_total", route=route, method="GET", status="200") == 1
    assert page.value("gpuherd_http_requests_total", route=route, method="GET", status="404") == 1
    timed = "gpuherd_http_request_duration_seconds"
    assert page.value(f"{timed}_count", route=route, method="GET") == 2
    assert page.value(f"{timed}_sum", route=route, method="GET") == pytest.approx(0.204)
    assert page.value(f"{timed}_bucket", route=route, method="GET", le="0.005") == 1
    assert page.value(f"{timed}_bucket", route=route, method="GET", le="0.25") == 2


def test_a_client_that_left_before_the_answer_has_no_status(meter: PrometheusMeter) -> None:
    meter.request("/livez", "GET", None, 0.1)
    assert shown(meter).total("gpuherd_http_requests_total", status="none") == 1


@given(methods=st.lists(st.text(min_size=1), min_size=1, max_size=50))
def test_methods_that_clients_invent_share_one_series(methods: list[str]) -> None:
    meter = PrometheusMeter(CollectorRegistry())
    for method in methods:
        meter.request("/livez", f"x{method}", 405, 0.0)
    assert shown(meter).total("gpuherd_http_requests_total", method=OTHER) == len(methods)


@pytest.mark.parametrize("outcome", sorted(NOT_SENT_OUTCOMES))
def test_a_call_that_was_never_made_is_counted_but_not_timed(meter: PrometheusMeter, outcome: str) -> None:
    meter.upstream_call("/gpu/instances", outcome, 0.0)
    page = shown(meter)
    assert page.total("gpuherd_novita_calls_total", outcome=outcome) == 1
    assert page.total("gpuherd_novita_call_duration_seconds_count") == 0


def test_a_call_that_was_made_is_timed_however_it_ended(meter: PrometheusMeter) -> None:
    for outcome in ("ok", "refused", "timeout", "lost"):
        meter.upstream_call("/gpu/instances", outcome, 0.3)
    assert shown(meter).value("gpuherd_novita_call_duration_seconds_count", endpoint="/gpu/instances") == 4


def test_jobs_webhooks_statuses_and_attempts_are_counted_under_their_words(meter: PrometheusMeter) -> None:
    meter.turn("create_instance", "done", 0.02)
    meter.webhook("http_5xx", 1.5)
    meter.status_left("starting", 42.0)
    meter.attempt("bound")
    page = shown(meter)
    assert page.value("gpuherd_job_runs_total", kind="create_instance", outcome="done") == 1
    assert page.value("gpuherd_job_run_duration_seconds_sum", kind="create_instance") == 0.02
    assert page.value("gpuherd_webhook_tries_total", outcome="http_5xx") == 1
    assert page.value("gpuherd_webhook_try_duration_seconds_sum") == 1.5
    assert page.value("gpuherd_instance_status_duration_seconds_sum", status="starting") == 42
    assert page.value("gpuherd_create_attempts_total", state="bound") == 1


def test_every_state_of_an_attempt_begins_at_zero_so_that_the_first_one_is_seen_as_growth(
    meter: PrometheusMeter,
) -> None:
    page = shown(meter)
    assert {
        it.labels["state"]: it.value for it in page.samples if it.name == "gpuherd_create_attempts_total"
    } == dict.fromkeys([state.value for state in AttemptState], 0.0)


def test_a_caller_that_hands_in_endless_words_costs_no_memory_and_no_count(
    meter: PrometheusMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus_meter, "SERIES_MAX", 20)
    for n in range(100):
        meter.upstream_call(f"/gpu/instance/{n}", "ok", 0.1)
    page = shown(meter)
    counts = [it for it in page.samples if it.name == "gpuherd_novita_calls_total"]
    assert len(counts) == 21
    assert sum(it.value for it in counts) == 100
    assert page.value("gpuherd_novita_calls_total", endpoint=OTHER, outcome=OTHER) == 80


def test_nothing_lands_in_the_registry_that_the_whole_process_shares(meter: PrometheusMeter) -> None:
    meter.request("/livez", "GET", 200, 0.1)
    assert b"gpuherd" not in generate_latest(REGISTRY)


def test_two_meters_in_one_process_do_not_know_each_other(meter: PrometheusMeter) -> None:
    other = PrometheusMeter(CollectorRegistry())
    meter.webhook("ok", 0.1)
    assert shown(other).total("gpuherd_webhook_tries_total") == 0


def test_no_series_has_a_birthday(meter: PrometheusMeter) -> None:
    meter.webhook("ok", 0.1)
    assert b"_created" not in generate_latest(meter.registry)


def test_it_keeps_the_promise_of_the_port(meter: PrometheusMeter) -> None:
    promised: Meter = meter
    assert promised is meter
