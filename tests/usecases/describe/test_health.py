"""A health check and what it found, as the API shows them."""

from __future__ import annotations

from datetime import timedelta

from gpuherd.contract.codec.model import encode
from gpuherd.domain.instance.health import EndpointHealth, Health, HealthCategory, HealthStatus
from gpuherd.domain.instance.health_check import HealthCheck
from gpuherd.usecases.describe.instance import describe_health, describe_health_check
from tests.domain.instance.test_health import CHECK, JUPYTER, SSH, WEB
from tests.support.fake_clock import START


def test_a_check_is_shown_with_its_defaults() -> None:
    assert encode(describe_health_check(HealthCheck())) == {
        "targetPort": None,
        "path": "/",
        "timeoutMs": 10_000,
        "retryAttempts": 3,
        "retryDelayMs": 2_000,
        "maxWaitTimeMs": 300_000,
        "expectedStatus": None,
        "bodyContains": None,
    }


def test_the_state_is_shown_as_the_contract_says() -> None:
    at = START + timedelta(seconds=1.5)
    endpoints = (
        EndpointHealth.seen(WEB, HealthCategory.OK, "fine", at, 0.0123456),
        EndpointHealth.seen(JUPYTER, HealthCategory.BAD_GATEWAY, "not up", at),
        EndpointHealth(22, SSH.endpoint, "tcp"),
    )
    health = Health(HealthStatus.IN_PROGRESS, START, None, endpoints, 1)
    assert encode(describe_health(CHECK, health)) == {
        "status": "in_progress",
        "config": encode(describe_health_check(CHECK)),
        "startedAt": "2026-01-01T00:00:00.000000Z",
        "completedAt": None,
        "endpoints": [
            {
                "port": 8080,
                "endpoint": WEB.endpoint,
                "type": "http",
                "status": "healthy",
                "category": "ok",
                "error": None,
                "responseTimeMs": 12.346,
                "checkedAt": "2026-01-01T00:00:01.500000Z",
            },
            {
                "port": 8888,
                "endpoint": JUPYTER.endpoint,
                "type": "http",
                "status": "unhealthy",
                "category": "bad_gateway",
                "error": "not up",
                "responseTimeMs": None,
                "checkedAt": "2026-01-01T00:00:01.500000Z",
            },
            {
                "port": 22,
                "endpoint": SSH.endpoint,
                "type": "tcp",
                "status": "pending",
                "category": None,
                "error": None,
                "responseTimeMs": None,
                "checkedAt": None,
            },
        ],
    }


def test_a_check_that_has_not_begun_is_pending() -> None:
    shown = encode(describe_health(CHECK, None))
    assert (shown["status"], shown["startedAt"], shown["endpoints"]) == ("pending", None, [])
