"""One instance as the API describes it: the only place here that knows the names of the JSON fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from gpuherd.domain.instance.instance import Goal, Status
from gpuherd.domain.instance.operation import OperationState
from gpuherd.domain.instance.wait_condition import WaitFor
from gpuherd.entrypoints.cli.render.times import parse_time

_LEAVING = frozenset({Status.FAILED, Status.DELETING, Status.DELETED})


@dataclass(frozen=True)
class Details:
    """A reading of the details that expects little: a field that is missing or odd reads as empty."""

    raw: Mapping[str, Any]
    # The start, stop or delete that is being followed, if one is: its word counts more than the status.
    operation: Mapping[str, Any] = field(default_factory=dict)

    def text(self, *keys: str) -> str:
        """Return the first of the fields that says something."""
        for key in keys:
            value = self.raw.get(key)
            if value not in (None, "", [], {}):
                return str(value)
        return ""

    def time(self, key: str) -> datetime | None:
        return parse_time(self.raw.get(key))

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self.raw.get(key)
        return value if isinstance(value, dict) else {}

    @property
    def id(self) -> str:
        # The answer to a create says instanceId, everything else id.
        return self.text("id", "instanceId")

    @property
    def name(self) -> str:
        return self.text("name") or self.id

    @property
    def status(self) -> str:
        return self.text("status")

    @property
    def usable(self) -> bool:
        told = self.raw.get("usable")
        if isinstance(told, bool):
            return told
        return self.status == Status.READY or (self.status == Status.RUNNING and bool(self.text("readyAt")))

    def reached(self, what: WaitFor) -> bool | None:
        """Tell whether `what` is reached; False: not without a new order, None: not yet."""
        if self.operation:
            state = self.operation.get("status")
            return None if state == OperationState.RUNNING else state == OperationState.SUCCEEDED
        match what:
            case WaitFor.READY:
                return self.usable or (False if self._leaving or self._down else None)
            case WaitFor.EXITED:
                return self.status == Status.EXITED or (False if self._leaving else None)
            case WaitFor.DELETED:
                stays = self.status == Status.FAILED and self.text("goal") != Goal.DELETED
                return self.status == Status.DELETED or (False if stays else None)

    @property
    def over(self) -> bool:
        """Tell whether it is not usable and nobody is working on making it so."""
        return self.reached(WaitFor.READY) is False

    @property
    def _leaving(self) -> bool:
        return self.status in _LEAVING or self.text("goal") == Goal.DELETED

    @property
    def _down(self) -> bool:
        # An accepted start takes the status away from `exited` at once, whatever the goal has been before.
        return self.status == Status.EXITED or self.text("goal") == Goal.STOPPED

    @property
    def price(self) -> str:
        return usd_an_hour(self.raw.get("hourlyPrice"))

    @property
    def facts(self) -> list[str]:
        """Return what was, or will be, rented: product, region, price."""
        gpus = self.text("gpuNum")
        count = f"{gpus} × " if gpus not in ("", "1") else ""
        product = self.text("productName")
        price = " ".join(filter(None, (self.price, _BILLING.get(self.text("billingMode"), ""))))
        return [fact for fact in (count + product if product else "", self.text("region"), price) if fact]

    @property
    def endpoints(self) -> list[tuple[str, str]]:
        """Return the ways in, as (name, address)."""
        ways = [(kind, str(where)) for kind, where in self.mapping("connectionDetails").items() if where]
        ports = self.raw.get("portMappings")
        for mapping in ports if isinstance(ports, list) else []:
            if isinstance(mapping, dict) and mapping.get("endpoint"):
                ways.append((f"port {mapping.get('port', '?')}", str(mapping["endpoint"])))
        return ways

    @property
    def last_error(self) -> Mapping[str, Any]:
        return self.mapping("lastError")


_BILLING = {"spot": "spot", "onDemand": "on-demand"}


def usd_an_hour(value: object) -> str:
    """Say a price as people do, or nothing if it is none."""
    if value in (None, ""):
        return ""
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return ""
    if not amount.is_finite():
        return ""
    cents = amount.quantize(Decimal("0.01"))
    # Prices go down to a thousandth of a cent: show cents at least, and never round money away.
    return f"${cents if cents == amount else amount.normalize():f}/h"
