"""An example of each model, put together from examples of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, get_args, get_origin

from gpuherd.contract.codec.model import (
    Json,
    Model,
    choices_of,
    fields_of,
    hints_of,
    is_left_out_if_none,
    key_of,
    parts_of,
    words_of,
)
from gpuherd.contract.codec.values import WithOffset

TIME, OFFSET_TIME = "2026-05-01T12:00:00.000000Z", "2026-05-01T12:00:00.000000+00:00"
INSTANCE, CLOUD = "inst_01kdvdna00sngxhwbavy8vep2a", "8b529b4a97b75092"
PRODUCT, REGION = "RTX 4090 24GB", "CN-HK-01"
# What a model says that its fields' names do not tell.
BY_MODEL: dict[str, Json] = {
    "Billed": {"through": "2026-04-30", "total": "12.3"},
    "CostGroup": {"total": "12.3"},
    "Costs": {"groupBy": "label:team", "total": "12.3"},
    "ApiKey": {"id": "key_01kdvdna00sngxhwbavy8vep2a", "label": "ci"},
    "ApiKeyWithSecret": {"id": "key_01kdvdna00sngxhwbavy8vep2a", "label": "ci", "key": "ghk_…"},
    "Attempt": {"state": "bound", "error": None},
    "AuditEntry": {"action": "instance.create", "target": INSTANCE, "before": "", "after": ""},
    "CacheStats": {"size": 3, "hits": 40, "misses": 3, "sets": 3},
    "Delivery": {"id": "msg_01kdvdna00sngxhwbavy8vep2a", "type": "instance.ready", "payload": {}},
    "DeliverySummary": {"id": "msg_01kdvdna00sngxhwbavy8vep2a", "type": "instance.ready"},
    "Event": {"type": "instance.ready", "details": {}},
    "FieldError": {"field": "gpuNum", "code": "INVALID_GPU_NUM", "message": "gpuNum must be from 1 to 8"},
    "HealthReport": {"status": "passed"},
    "EndpointHealth": {"status": "healthy", "category": "ok", "error": None},
    "InstanceEventData": {"status": "ready", "goal": "running", "lastError": None},
    "Instance": {"status": "ready", "lastError": None, "stale": False},
    "InstanceRecord": {"status": "ready", "lastError": None},
    "Job": {"id": "job_01kdvdna00sngxhwbavy8vep2a", "status": "COMPLETED", "error": None},
    "ListedInstance": {"status": "ready", "source": "merged", "lastError": None, "cloudError": None},
    "ListedMachine": {"cloudError": None, "consistency": "novita-newer", "ownership": "foreign"},
    "LiveEvent": {"id": 42, "type": "instance.ready", "details": {}},
    "Operation": {"status": "succeeded", "error": None},
    "OperationPhase": {"phase": "ready"},
    "Orphan": {"error": None, "order": None, "orderedAt": None, "orderedBy": None, "askedAt": None},
    "PortMapping": {"endpoint": "https://8888.example.com", "type": "http"},
    "Problem": {
        "type": "urn:gpuherd:problem:instance-not-found",
        "title": "Not found",
        "status": 404,
        "detail": "there is no instance train-1",
        "code": "INSTANCE_NOT_FOUND",
    },
    "Template": {"id": "101", "problem": None, "name": "pytorch"},
    "WebhookEndpoint": {"id": "we_01kdvdna00sngxhwbavy8vep2a", "disabledAt": None, "disabledReason": None},
    "WebhookEndpointWithSecret": {"id": "we_01kdvdna00sngxhwbavy8vep2a", "secret": "whsec_…"},
    "KeyWebhookSecret": {"keyId": "k3y1d0f8", "signedWith": "key", "secret": "whsec_…"},
    "WebhookEndpointRemoved": {"id": "we_01kdvdna00sngxhwbavy8vep2a", "removed": True},
    "WebhookTest": {"id": "msg_01kdvdna00sngxhwbavy8vep2a", "status": 204, "outcome": "ok", "error": None},
}
BY_FIELD: Json = {
    "actor": "admin",
    "ageSeconds": 300,
    "byType": {"create_instance": 1},
    "bestHourlyPrice": "0.2",
    "blocked": None,
    "braked": None,
    "caches": {},
    "cloudId": CLOUD,
    "cloudInstanceId": CLOUD,
    "cloudStatus": "running",
    "code": REGION,
    "collectorBraked": None,
    "createsBlocked": None,
    "installationShared": None,
    "details": {},
    "durationMs": 12,
    "endpointId": None,
    "envNames": ["MODEL"],
    "expectedStatus": None,
    "gpuNames": [PRODUCT],
    "gpuHourlyPrice": "0.2",
    "gpuNum": 1,
    "hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "hourlyPrice": "0.2",
    "id": INSTANCE,
    "imageUrl": "docker.io/library/pytorch:2.4",
    "instanceId": INSTANCE,
    "label": "Hong Kong",
    "labels": {"team": "vision"},
    "lastError": None,
    "log": [],
    "maxHourlyPrice": "1",
    "maxRootfsSize": 2000,
    "memory": 96,
    "memoryPerGpu": 96,
    "minRootfsSize": 60,
    "name": "train-1",
    "nextCursor": None,
    "note": None,
    "novitaInstanceId": CLOUD,
    "operationId": "op_01kdvdna00sngxhwbavy8vep2a",
    "owner": "admin",
    "path": "/",
    "payload": {"instanceId": INSTANCE},
    "port": 8888,
    "productId": "4090.16c96g.v2",
    "productName": PRODUCT,
    "reasons": [],
    "region": REGION,
    "regions": [REGION],
    "registryAuthId": None,
    "replicas": {},
    "requestId": "req_01kdvdna00sngxhwbavy8vep2a",
    "correlationId": "req_01kdvdna00sngxhwbavy8vep2a",
    "rootfsSize": 60,
    "sources": {"local": 0, "novita": 0, "merged": 1},
    "spotReclaimAt": None,
    "ssh": "ssh -p 32787 root@proxy.example.com",
    "statusReason": "",
    "stoppedAt": None,
    "templateId": "101",
    "day": "2026-04-30",
    "total": 1,
    "trouble": None,
    "type": "http",
    "url": "https://example.com/hook",
    "webhookUrl": "https://example.com/hook",
    "webTerminal": None,
    "witness": "full",
}


def example_of(kind: type[Model]) -> Json:
    """Return an example; what is left out when there is nothing to say is left out."""
    hints = hints_of(kind)
    said = BY_MODEL.get(kind.__name__, {})
    shown = {}
    for it in fields_of(kind):
        key, hint = key_of(it), hints[it.name]
        if key in said:
            shown[key] = said[key]
        elif not is_left_out_if_none(hint):
            shown[key] = _example(key, hint)
    return shown


def _is_model(hint: Any) -> bool:
    return bool(choices_of(hint)) or (isinstance(hint, type) and issubclass(hint, Model))


def _example(key: str, hint: Any) -> Any:
    words = words_of(hint)
    hint, notes, nullable = parts_of(hint)
    if words:
        return words[0]
    if isinstance(hint, type) and issubclass(hint, Model):
        return example_of(hint)
    if choices := choices_of(hint):
        return example_of(choices[0])
    is_list = get_origin(hint) is tuple
    if is_list and BY_FIELD.get(key) != [] and _is_model(get_args(hint)[0]):
        return [_example(key, get_args(hint)[0])]
    if hint is type(None):
        return None
    if key in BY_FIELD:
        return BY_FIELD[key]
    if hint is datetime:
        return OFFSET_TIME if any(isinstance(it, WithOffset) for it in notes) else TIME
    if nullable:
        return None
    if is_list:
        return []
    if get_origin(hint) is Mapping:
        return {}
    return {str: key, int: 1, float: 0.5, bool: True, Decimal: "0.2"}.get(hint)
