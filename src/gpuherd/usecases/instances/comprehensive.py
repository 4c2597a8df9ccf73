"""Merge: our instances and the cloud's machines as one list; of what the cloud shows, its word counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuherd.domain.consistency import Consistency, Verdict, cloud_status, judge_alone, judge_pair
from gpuherd.domain.machine import Listing, Machine, Phase
from gpuherd.domain.tag import owner_tag, plain_name, tag_on
from gpuherd.ports.store import Live
from gpuherd.usecases.describe import describe, iso

Entry = dict[str, Any]

NOT_ASKED = Verdict(Consistency.LOCAL_NEWER, "the cloud could not be asked")


def merge_machines(local: Sequence[Live], listing: Listing, installation: str) -> Iterator[Entry]:
    """Yield every instance with its machine, then the machines that no instance has; linear in both."""
    shown = [machine for machine in listing.machines if machine.phase is not Phase.ABSENT]
    by_id = {machine.cloud_id: machine for machine in shown}
    by_tag = {tag: machine for machine in shown if (tag := tag_on(machine))}
    for live in local:
        machine = _machine_of(live, by_id, by_tag)
        if machine is None:
            awaited = live.open_tag is not None
            verdict = judge_alone(live.instance, awaited=awaited, list_complete=listing.complete)
            yield _alone(live, verdict)
        else:
            by_id.pop(machine.cloud_id, None)
            yield _merged(live, machine)
    for machine in by_id.values():
        yield _unclaimed(machine, installation)


def local_only(local: Sequence[Live]) -> Iterator[Entry]:
    """Yield every instance as we remember it, for want of a list."""
    for live in local:
        yield _alone(live, NOT_ASKED)


def _machine_of(live: Live, by_id: Mapping[str, Machine], by_tag: Mapping[str, Machine]) -> Machine | None:
    if live.instance.cloud_id is not None:
        return by_id.get(live.instance.cloud_id)
    # Its create call has no outcome yet, but the machine gives itself away.
    return by_tag.get(live.open_tag) if live.open_tag else None


def _alone(live: Live, verdict: Verdict) -> Entry:
    it = live.instance
    return {
        **describe(it),
        "source": "local",
        "ownership": "ours",
        "localStatus": it.status.value,
        **_verdict(verdict),
        **_cloud_side(None),
    }


def _merged(live: Live, machine: Machine) -> Entry:
    it = live.instance
    return {
        **describe(it),
        "status": (cloud_status(machine, it.status) or it.status).value,
        "cloudInstanceId": machine.cloud_id,
        "novitaInstanceId": machine.cloud_id,
        "source": "merged",
        "ownership": "ours",
        "localStatus": it.status.value,
        **_verdict(judge_pair(it, machine)),
        **_cloud_side(machine),
    }


def _unclaimed(machine: Machine, installation: str) -> Entry:
    """Return a machine that belongs to no instance: somebody else's, or one of ours that nobody wants."""
    tag = owner_tag(machine)
    is_ours = tag is not None and tag.installation == installation
    if is_ours:
        verdict = Verdict(Consistency.CONFLICTED, "it carries our tag, but no instance of ours has it")
    else:
        verdict = Verdict(Consistency.NOVITA_NEWER, "only the cloud knows of it")
    status = cloud_status(machine)
    return {
        "id": None,
        "instanceId": None,
        "name": plain_name(machine.name),
        "status": status.value if status else None,
        "statusReason": machine.error,
        "goal": None,
        "usable": None,
        "cloudInstanceId": machine.cloud_id,
        "novitaInstanceId": machine.cloud_id,
        "productId": machine.product_id or None,
        "productName": machine.product_name or None,
        "region": machine.region or None,
        "gpuNum": machine.gpu_num,
        "rootfsSize": machine.disk_gb,
        "billingMode": machine.billing_mode or None,
        "hourlyPrice": None,
        "templateId": None,
        "imageUrl": machine.image_url or None,
        "portMappings": [{"port": p.port, "endpoint": p.endpoint, "type": p.type} for p in machine.ports],
        "labels": {},
        "createdAt": iso(machine.created_at),
        "source": "novita",
        "ownership": "ours" if is_ours else "foreign",
        "localStatus": None,
        **_verdict(verdict),
        **_cloud_side(machine),
    }


def _verdict(verdict: Verdict) -> Entry:
    return {"consistency": verdict.consistency.value, "consistencyReason": verdict.reason}


def _cloud_side(machine: Machine | None) -> Entry:
    return {
        "cloudStatus": machine.raw_status if machine else None,
        "cloudError": (machine.error or None) if machine else None,
        "spotStatus": (machine.spot_status or None) if machine else None,
        "spotReclaimTime": iso(machine.spot_reclaim_at) if machine else None,
    }
