"""The words of the contract are those of the domain: a new one must be told to the world."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from gpuherd.contract import access, instance, job, operation, orphan, webhook, why
from gpuherd.contract.codec.model import words_of
from gpuherd.domain.access.api_key import Scope
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.instance import events
from gpuherd.domain.instance.attempt import AttemptState
from gpuherd.domain.instance.health import EndpointStatus, HealthCategory, HealthStatus
from gpuherd.domain.instance.instance import Goal, OnFailure, Optimize, Status
from gpuherd.domain.instance.operation import OperationKind, OperationPhase, OperationState
from gpuherd.domain.orphans.consistency import Consistency
from gpuherd.domain.orphans.orphan import OrphanOrder, OrphanVerdict
from gpuherd.domain.webhooks.delivery import DeliveryState
from gpuherd.jobs.job import JobStatus, Priority
from gpuherd.usecases.explain.waiting import ADVICE
from gpuherd.usecases.jobs import kinds


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
    assert set(words_of(job.JobKind)) == {*kinds.RECONCILE_KINDS, kinds.CHECK_HEALTH, kinds.SEND_WEBHOOK}
    assert set(webhook.INSTANCE_EVENT_TYPES) == events.WEBHOOK_TYPES
    assert webhook.TEST == events.WEBHOOK_TEST
    assert set(words_of(why.WaitingFor)) == set(map(str, ADVICE))
