"""Quota: what a key's instances use, and whether the limits allow one more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_DOWN, Decimal

from gpuherd.domain.api_key import Limits
from gpuherd.domain.errors import QuotaExceeded
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.instance_state import keeps_machine

ZERO_USD = Decimal(0)
NANO_USD = Decimal("0.000000001")
HOUR_MICROS = timedelta(hours=1) // timedelta(microseconds=1)


@dataclass(frozen=True)
class Usage:
    """The GPUs in use, and the hourly cost of everything."""

    gpus: int = 0
    hourly_usd: Decimal = ZERO_USD


def usage_of(instance: Instance) -> Usage:
    """Return what an instance uses or will soon use: its disk if it is stopped, nothing if it is gone.

    A replacement counts instead of its original. Otherwise a key at its limit could never replace.
    """
    # guard: in the limits an heir takes the place of its predecessor
    if instance.chain is not None and instance.chain.heir is not None:
        return Usage()
    if not holds_gpus(instance):
        return Usage(0, hourly_usd_now(instance))
    return Usage(instance.wish.gpu_num, hourly_usd(instance) or ZERO_USD)


def holds_gpus(instance: Instance) -> bool:
    """Return True if a machine runs for it, may run, or soon will."""
    match instance.status:
        case Status.DELETED | Status.EXITED:
            return False
        case Status.FAILED:
            # A machine that is being removed still costs the same.
            return instance.releasing or (keeps_machine(instance) and _runs_by_meter(instance))
        case _:
            return True


def _runs_by_meter(instance: Instance) -> bool:
    """Return True if more than the disk is billed. After a failure no pass watches the machine."""
    cost = instance.cost
    return cost.at is None or cost.rate * NANO_USD > instance.disk_hourly_usd


def hourly_usd(instance: Instance) -> Decimal | None:
    """Return its hourly cost: as rented, otherwise its maximum, otherwise as expected."""
    if instance.rental is not None:
        # guard: the disk counts in what a key spends
        return instance.hourly_usd
    most = instance.wish.hourly_usd_max
    return instance.expected_hourly_usd if most is None else most


def hourly_usd_now(instance: Instance) -> Decimal:
    """Return what a rented machine costs per hour now. A stopped one still has its disk."""
    if instance.rental is None:
        return ZERO_USD
    if holds_gpus(instance):
        return instance.hourly_usd or ZERO_USD
    has_disk = instance.status is Status.EXITED or keeps_machine(instance)
    return instance.disk_hourly_usd if has_disk else ZERO_USD


def cost_until_end(instance: Instance, now: datetime) -> Decimal | None:
    """Return the cost until its lease ends if nothing changes, as far as known."""
    # It is unknown whether a stopped instance will be started before then.
    is_at_rest = instance.rental is not None and not holds_gpus(instance)
    price = hourly_usd_now(instance) if is_at_rest else hourly_usd(instance)
    term = instance.lease_term
    if price is None or term is None:
        return None
    left = max(timedelta(0), term.ends_at - now)
    hours = Decimal(left // timedelta(microseconds=1)) / HOUR_MICROS
    return (price * hours).quantize(NANO_USD, ROUND_DOWN)


def check_quota(limits: Limits, used: Usage, wanted: Usage) -> None:
    """Raise an error if `wanted` on top of `used` exceeds the limits of the key."""
    too_many = limits.max_gpus is not None and used.gpus + wanted.gpus > limits.max_gpus
    too_dear = (
        limits.max_hourly_usd is not None and used.hourly_usd + wanted.hourly_usd > limits.max_hourly_usd
    )
    if too_many or too_dear:
        raise QuotaExceeded(
            _words(limits, used, wanted, too_many=too_many),
            details={
                "gpus": {"used": used.gpus, "requested": wanted.gpus, "allowed": limits.max_gpus},
                "hourlyUsd": {
                    "used": _usd(used.hourly_usd),
                    "requested": _usd(wanted.hourly_usd),
                    "allowed": None if limits.max_hourly_usd is None else _usd(limits.max_hourly_usd),
                },
            },
        )


def _words(limits: Limits, used: Usage, wanted: Usage, *, too_many: bool) -> str:
    if too_many:
        return f"this key holds {used.gpus} of {limits.max_gpus} GPUs, so {wanted.gpus} more cannot be had"
    allowed = _usd(limits.max_hourly_usd or ZERO_USD)
    return (
        f"this key's instances cost ${_usd(used.hourly_usd)} of ${allowed} an hour, "
        f"so ${_usd(wanted.hourly_usd)} more cannot be spent"
    )


def _usd(amount: Decimal) -> str:
    return f"{amount.normalize():f}"
