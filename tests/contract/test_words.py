"""The words of the contract are those of the domain: a new one must be told to the world."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from gpuherd.contract import access, instance, job, operation, orphan, webhook, why
from gpuherd.contract.codec.model import words_of
from gpuherd.domain.api_key import Scope
from gpuherd.domain.cloud.list_consistency import Consistency
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.cloud.orphan import OrphanOrder, OrphanVerdict
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.health import EndpointStatus, HealthCategory, HealthStatus
from gpuherd.domain.instance.instance import Goal, Status
from gpuherd.domain.instance.launch_spec import OnFailure, Optimize
from gpuherd.domain.instance.operation import OperationKind, OperationPhase, OperationState
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.domain.job import JobStatus, Priority
from gpuherd.domain.webhooks.webhook_delivery import DeliveryState
from gpuherd.usecases.instances.tell_timeline import ADVICE
from gpuherd.usecases.service import make_jobs


@pytest.mark.parametrize(
    ("told", "known"),
    [
        (access.Scope, Scope),
        (instance.Status, Status),
        (instance.Goal, Goal),
        (instance.BillingMode, BillingMode),
        (instance.Optimize, Optimize),
        (instance.OnFailure, OnFailure),
        (instance.HealthStatus, HealthStatus),
        (instance.EndpointStatus, EndpointStatus),
        (instance.HealthCategory, HealthCategory),
        (instance.Consistency, Consistency),
        (job.JobStatus, JobStatus),
        (operation.OperationKind, OperationKind),
        (operation.OperationState, OperationState),
        (operation.PhaseName, OperationPhase),
        (orphan.Verdict, OrphanVerdict),
        (orphan.OrphanOrder, OrphanOrder),
        (webhook.DeliveryState, DeliveryState),
        (why.AttemptState, AttemptState),
    ],
)
def test_every_word_of_the_domain_is_told(told: Any, known: type[Enum]) -> None:
    assert set(words_of(told)) == {it.value for it in known}


def test_every_other_word_is_told() -> None:
    assert set(words_of(job.Priority)) == {it.name for it in Priority}
    assert set(words_of(job.JobKind)) == {
        *make_jobs.RECONCILE_KINDS,
        make_jobs.CHECK_HEALTH,
        make_jobs.SEND_WEBHOOK,
    }
    assert set(webhook.INSTANCE_EVENT_TYPES) == instance_event.WEBHOOK_TYPES
    assert webhook.TEST == instance_event.WEBHOOK_TEST
    assert set(words_of(why.WaitingFor)) == set(map(str, ADVICE))
