"""Instances and their launch specs as rows, and rows as instances."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from decimal import Decimal
from itertools import compress
from operator import attrgetter, ne
from typing import Any, get_type_hints

from sqlalchemy import Row

from gpuherd.adapters.sql.sql_types import (
    Doc,
    at,
    dumps,
    from_micros,
    moment,
    ports_doc,
    ports_of,
)
from gpuherd.adapters.stores.row_codec import (
    billing_mode_of,
    failure_doc,
    failure_of,
    operation_doc,
    operation_of,
)
from gpuherd.domain.cloud.capacity_line import is_in_line
from gpuherd.domain.cloud.machine import ConnectionDetails, ReclaimNotice
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.instance.health import Health, HealthCheck
from gpuherd.domain.instance.idleness import UseWatch
from gpuherd.domain.instance.instance import (
    Goal,
    Instance,
    Rental,
    SettledCost,
    StartWait,
    Status,
    Waiting,
    WaitingFor,
)
from gpuherd.domain.instance.instance_state import due_at, use_look_at
from gpuherd.domain.instance.launch_spec import (
    EnvVar,
    LaunchSpec,
    OnFailure,
    Optimize,
    VolumeMount,
)
from gpuherd.domain.instance.lease import NO_TERMS, LeaseTerm, Terms
from gpuherd.domain.instance.lineage import NO_REPLACEMENT, Chain, ReplacePolicy
from gpuherd.domain.instance.quota import usage_of
from gpuherd.domain.money.budget import lease_columns


def succession_doc(it: Instance) -> Doc:
    """Return how the replacement of an instance is kept."""
    doc: Doc = {}
    if it.replacement != NO_REPLACEMENT:
        doc["replacement"] = it.replacement.as_doc()
    if it.chain is not None:
        doc["chain"] = it.chain.as_doc()
    if it.look_at is not None:
        doc["look_at"] = at(it.look_at)
    return doc


def succession_of(doc: Doc) -> Doc:
    """Return the fields that were kept."""
    replacement, chain = doc.get("replacement"), doc.get("chain")
    return {
        "replacement": NO_REPLACEMENT if replacement is None else ReplacePolicy.from_doc(replacement),
        "chain": None if chain is None else Chain.from_doc(chain),
        "look_at": moment(doc.get("look_at")),
    }


# How a value is kept, and how it is read again; None: as it is.
_Ways = tuple[Callable[[Any], Any], Callable[[Any], Any]] | tuple[None, None]


# By the type of a field.
_KEPT_AS: dict[Any, _Ways] = {
    **dict.fromkeys((str, int, bool, int | None, str | None), (None, None)),
    tuple[str, ...]: (list, tuple),
    tuple[str, ...] | None: (
        lambda it: None if it is None else list(it),
        lambda it: None if it is None else tuple(it),
    ),
    # The values are sealed before they come here.
    tuple[EnvVar, ...]: (
        lambda it: [[each.name, each.sealed, each.secret] for each in it],
        lambda it: tuple([EnvVar(*each) for each in it]),
    ),
    tuple[VolumeMount, ...]: (
        lambda it: [[each.volume_id, each.mount_path] for each in it],
        lambda it: tuple([VolumeMount(*each) for each in it]),
    ),
    BillingMode: (str, BillingMode),
    Optimize: (str, Optimize),
    Decimal | None: (
        lambda it: None if it is None else str(it),
        lambda it: None if it is None else Decimal(it),
    ),
}


# The version before reads these without asking whether they are there.
_ALWAYS_KEPT = (
    *("template_id", "gpu_num", "disk_gb", "regions", "billing_mode"),
    *("hourly_usd_max", "optimize", "capacity_wait_s"),
)


def _kept_fields() -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield of each field its name, the value that takes no room, and how others are kept and read again.

    The product's name is not among them: it has a column. A field of a type that is not above has no way.
    """
    types = get_type_hints(LaunchSpec)
    for it in fields(LaunchSpec):
        if it.name != "product_name":
            # All others take room only where somebody has asked for them, which few do.
            default = MISSING if it.name in _ALWAYS_KEPT else it.default
            yield it.name, default, *_KEPT_AS[types[it.name]]


_KEPT = tuple(_kept_fields())
_NAMES, _DEFAULTS, _KEEP, _ = zip(*_KEPT, strict=True)
_KNOWN = frozenset(_NAMES)
_READ = tuple((name, read) for name, _, _, read in _KEPT if read is not None)
_values = attrgetter(*_NAMES)


def wish_doc(wish: LaunchSpec) -> Doc:
    """Return how a wish is kept: what is said in it, but the product's name, which has a column."""
    values = _values(wish)
    said = compress(zip(_NAMES, _KEEP, values, strict=True), map(ne, values, _DEFAULTS))
    return {name: value if keep is None else keep(value) for name, keep, value in said}


def wish_of(doc: Doc, product_name: str) -> LaunchSpec:
    """Return the wish that was kept; what an older version did not know has its default."""
    values = {name: value for name, value in doc.items() if name in _KNOWN}
    for name, read in _READ:
        if name in values:
            values[name] = read(values[name])
    return LaunchSpec(product_name=product_name, **values)


# Prices are summed up by the database, and exactly.
MICROS = 1_000_000


def instance_row(it: Instance) -> Doc:
    """Return the columns of an instance, without the lease and the version."""
    wish, rental, error, used, reclaim = it.wish, it.rental, it.last_error, usage_of(it), it.reclaim
    lease_ends_at, lease_s = lease_columns(it)
    doc: Doc = {
        "wish": wish_doc(wish),
        "deadline": at(it.deadline),
        "estimated_ready_at": at(it.estimated_ready_at),
        "expected_usd": None if it.expected_hourly_usd is None else str(it.expected_hourly_usd),
        "reason": it.reason,
        "status_since": at(it.status_since),
        "waiting_for": None if it.waiting_for is None else _waiting_doc(it.waiting_for),
        "webhook_url": it.webhook_url,
        "labels": it.labels,
        "on_failure": it.on_failure.value,
        "rental": None
        if rental is None
        else {
            "product_id": rental.product_id,
            "product_name": rental.product_name,
            "region": rental.region,
            "cluster_id": rental.cluster_id,
            "gpu_hourly_usd": str(rental.gpu_hourly_usd),
            "image_url": rental.image_url,
        },
        "disk_usd": str(it.disk_hourly_usd),
        "ports": ports_doc(it.ports),
        "connection": vars(it.connection),
        "tag_verified": it.tag_verified,
        "started_at": at(it.started_at),
        "stopped_at": at(it.stopped_at),
        "releasing": it.releasing,
        "reclaim_at": None if reclaim is None else at(reclaim.reclaim_at),
        **_machine_doc(it),
        **_terms_doc(it),
        **_rented_as_doc(rental),
        **({} if it.line_since is None else {"line_since": at(it.line_since)}),
        **({} if it.start_wait is None else {"start_wait": _start_wait_doc(it.start_wait)}),
        **succession_doc(it),
        "asked_at": at(it.asked_at),
        "operation": None if it.operation is None else operation_doc(it.operation),
        "health_check": None if it.health_check is None else it.health_check.as_doc(),
        "health": None if it.health is None else it.health.as_doc(),
        "last_error": failure_doc(error),
        "sequence": it.sequence,
        "correlation_id": it.correlation_id,
    }
    return {
        "id": it.id,
        "name": it.name,
        "status": it.status.value,
        "goal": it.goal.value,
        "settled": it.settled,
        "cloud_id": it.cloud_id,
        "product_name": wish.product_name,
        "created_at": it.created_at,
        "ready_at": it.ready_at,
        "owner": it.owner,
        "gpus": used.gpus,
        "micro_usd": int(used.hourly_usd * MICROS),
        "due_at": due_at(it),
        "use_look_at": use_look_at(it),
        "lease_ends_at": lease_ends_at,
        "lease_s": lease_s,
        "waits_since": it.line_since if is_in_line(it) else None,
        "lineage": None if it.chain is None else it.chain.lineage,
        "link": None if it.chain is None else it.chain.link,
        "rented_product": None if rental is None else rental.product_name,
        "doc": dumps(doc),
    }


def instance_of(row: Row[Any]) -> Instance:
    """Return the instance that a row remembers."""
    doc = json.loads(row.doc)
    rental, error = doc["rental"], doc["last_error"]
    expected = doc.get("expected_usd")
    wish = wish_of(doc["wish"], row.product_name)
    return Instance(
        id=row.id,
        name=row.name,
        wish=wish,
        goal=Goal(row.goal),
        status=Status(row.status),
        created_at=row.created_at,
        deadline=from_micros(doc["deadline"]),
        estimated_ready_at=from_micros(doc["estimated_ready_at"]),
        owner=row.owner,
        expected_hourly_usd=None if expected is None else Decimal(expected),
        reason=doc["reason"],
        status_since=moment(doc.get("status_since")),
        waiting_for=_waiting_of(doc),
        line_since=moment(doc.get("line_since")),
        start_wait=_start_wait_of(doc.get("start_wait")),
        **succession_of(doc),
        webhook_url=doc["webhook_url"],
        labels=doc["labels"],
        on_failure=OnFailure(doc["on_failure"]),
        cloud_id=row.cloud_id,
        former_cloud_id=doc.get("former_cloud_id"),
        rental=None
        if rental is None
        else Rental(
            **{**rental, "gpu_hourly_usd": Decimal(rental["gpu_hourly_usd"])},
            billing_mode=billing_mode_of(doc.get("rented_as")),
        ),
        disk_hourly_usd=Decimal(doc["disk_usd"]),
        ports=ports_of(doc["ports"]),
        connection=ConnectionDetails(**doc["connection"]),
        machine_made_at=moment(doc.get("machine_made_at")),
        tag_verified=doc["tag_verified"],
        started_at=moment(doc["started_at"]),
        ready_at=row.ready_at,
        stopped_at=moment(doc["stopped_at"]),
        releasing=doc["releasing"],
        reclaim=_reclaim_of(doc),
        **_terms_of(doc),
        asked_at=moment(doc["asked_at"]),
        operation=None if doc["operation"] is None else operation_of(doc["operation"]),
        health_check=None if doc["health_check"] is None else HealthCheck.from_doc(doc["health_check"]),
        health=None if doc["health"] is None else Health.from_doc(doc["health"]),
        last_error=failure_of(error),
        settled=row.settled,
        sequence=doc["sequence"],
        correlation_id=doc.get("correlation_id", ""),
        version=row.version,
        cost=SettledCost(row.cost_nusd, row.cost_doubt_nusd, row.cost_rate_nusd_h, row.cost_at),
    )


def _machine_doc(it: Instance) -> Doc:
    """Return what is known of a machine, once there is one."""
    doc: Doc = {}
    if it.former_cloud_id is not None:
        doc["former_cloud_id"] = it.former_cloud_id
    if it.machine_made_at is not None:
        doc["machine_made_at"] = at(it.machine_made_at)
    if it.reclaim is not None:
        doc["reclaim"] = [at(it.reclaim.seen_at), at(it.reclaim.loss_expected_at)]
    return doc


def _rented_as_doc(rental: Rental | None) -> Doc:
    """Return how a machine is paid for."""
    mode = None if rental is None else rental.billing_mode
    return {} if mode is None else {"rented_as": mode.value}


def _reclaim_of(doc: Doc) -> ReclaimNotice | None:
    if not doc.get("reclaim"):
        return None
    seen_at, loss_expected_at = map(from_micros, doc["reclaim"])
    return ReclaimNotice(seen_at, moment(doc["reclaim_at"]), loss_expected_at)


def _terms_doc(it: Instance) -> Doc:
    """Return how the end of an instance is kept; most have none, and need no room for it."""
    doc: Doc = {}
    if it.terms is not NO_TERMS and it.terms != NO_TERMS:
        doc["terms"] = it.terms.as_doc()
    if it.lease_term is not None:
        doc["lease_term"] = it.lease_term.as_doc()
    if it.used_at is not None:
        doc["used_at"] = at(it.used_at)
    if it.usable_at is not None:
        doc["usable_at"] = at(it.usable_at)
    if it.use_watch is not None:
        doc["use_watch"] = it.use_watch.as_doc()
    if it.data_expiry_told:
        doc["data_expiry_told"] = True
    return doc


def _terms_of(doc: Doc) -> Doc:
    terms, lease_term, use_watch = doc.get("terms"), doc.get("lease_term"), doc.get("use_watch")
    return {
        "terms": NO_TERMS if terms is None else Terms.from_doc(terms),
        "lease_term": None if lease_term is None else LeaseTerm.from_doc(lease_term),
        "used_at": moment(doc.get("used_at")),
        "usable_at": moment(doc.get("usable_at")),
        "use_watch": None if use_watch is None else UseWatch.from_doc(use_watch),
        "data_expiry_told": doc.get("data_expiry_told", False),
    }


def _waiting_doc(it: Waiting) -> Doc:
    return {"what": it.what.value, "message": it.message, "since": at(it.since)}


def _waiting_of(doc: Doc) -> Waiting | None:
    waiting = doc["waiting_for"]
    if waiting is None:
        return None
    return Waiting(WaitingFor(waiting["what"]), waiting["message"], moment(waiting["since"]))


def _start_wait_doc(it: StartWait) -> Doc:
    return {**vars(it), "refused_at": at(it.refused_at)}


def _start_wait_of(doc: Doc | None) -> StartWait | None:
    return None if doc is None else StartWait(**{**doc, "refused_at": moment(doc["refused_at"])})
