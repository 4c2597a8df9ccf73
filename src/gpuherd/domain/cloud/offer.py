"""Offers and templates: what the cloud sells, and what shall run on it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

from gpuherd.domain.cloud.disk_tariff import NOVITA_DISK, DiskTariff
from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.workload.envs import ENVS_MAX
from gpuherd.domain.workload.ports import MAX_PORTS, PORT_KINDS, number_problem
from gpuherd.domain.workload.volumes import VolumeMount


class BillingMode(StrEnum):
    """How a machine is paid for."""

    SPOT = "spot"
    ON_DEMAND = "onDemand"


def known_mode(word: str) -> BillingMode | None:
    """Return the mode that the cloud's word means; it has others, and sometimes says none."""
    return BillingMode(word) if word in {it.value for it in BillingMode} else None


class OfferKey(NamedTuple):
    """What an offer is called wherever it is remembered: its stock is the same for everybody."""

    product_id: str
    region: str
    # None where a version wrote it that did not keep it.
    billing_mode: BillingMode | None


@dataclass(frozen=True)
class Region:
    """A place where machines run. People say the code, the wire wants the cluster id."""

    code: str
    label: str
    cluster_id: str
    gpu_names: tuple[str, ...] = ()

    def is_called(self, word: str) -> bool:
        """Tell whether `word` names this region."""
        return word.strip().casefold() in (
            self.code.casefold(),
            self.label.casefold(),
            self.cluster_id.casefold(),
        )


@dataclass(frozen=True)
class Offer:
    """One product in one region at one price."""

    product_id: str
    product_name: str
    region: str
    cluster_id: str
    available: bool
    stock: str
    spot_usd: Decimal | None
    on_demand_usd: Decimal | None
    cpu_per_gpu: int = 0
    memory_gb_per_gpu: int = 0
    disk_gb_min: int = 0
    disk_gb_max: int = 0
    disk: DiskTariff = NOVITA_DISK
    # In which list it stood: one for each way to pay. None: in whichever was asked for.
    listed_as: BillingMode | None = None

    def gpu_hourly_usd(self, mode: BillingMode) -> Decimal | None:
        """Return the price of one GPU for one hour, or None where it is not sold that way."""
        return self.spot_usd if mode is BillingMode.SPOT else self.on_demand_usd

    def hourly_usd(self, mode: BillingMode, gpu_num: int, disk_gb: int) -> Decimal | None:
        """Return the price of a whole machine for one hour, its disk included, or None as above."""
        price = self.gpu_hourly_usd(mode)
        return None if price is None else price * gpu_num + self.disk.hourly_usd(disk_gb)


@dataclass(frozen=True)
class Template:
    """What to run: an image with its ports, environment and command."""

    template_id: str
    name: str
    image: str
    registry_auth_id: str = ""
    command: str = ""
    entrypoint: str = ""
    ports: tuple[tuple[int, str], ...] = ()
    # Hidden from repr: people keep tokens in here.
    envs: tuple[tuple[str, str], ...] = ()
    channel: str = ""
    min_cuda_version: str = ""

    def __repr__(self) -> str:
        return f"Template({self.template_id!r}, {self.name!r}, image={self.image!r})"


class TemplateUnusable(GpuherdError):
    """The template exists, but nothing can be started from it."""

    code = "INVALID_TEMPLATE_CONFIGURATION"


def check_template(template: Template) -> Template:
    """Return the template if a machine can be started from it, or say what is wrong with it."""
    problems = []
    if not template.image.strip():
        problems.append("it names no image")
    if len(template.image) > 500:
        problems.append("its image name is longer than 500 characters")
    if len(template.ports) > MAX_PORTS:
        problems.append(f"it opens {len(template.ports)} ports, {MAX_PORTS} are allowed")
    for port, kind in template.ports:
        if problem := number_problem(port):
            problems.append(problem)
        if kind not in PORT_KINDS:
            problems.append(f"port {port} has the unknown type {kind!r}")
    if len(template.envs) > ENVS_MAX:
        problems.append(f"it has more than {ENVS_MAX} environment variables")
    if problems:
        what = f"template {template.template_id}" if template.template_id else "what is to run"
        raise TemplateUnusable(f"{what} cannot be used: {'; '.join(problems)}")
    return template


@dataclass(frozen=True)
class CreateCall:
    """One create call, complete: what the cloud is asked to rent."""

    name: str
    tag: str
    offer: Offer
    template: Template
    gpu_num: int
    disk_gb: int
    billing_mode: BillingMode
    # Variables whose values are redacted also in pieces where an answer quotes them.
    secret_envs: frozenset[str] = frozenset()
    volumes: tuple[VolumeMount, ...] = ()
    # By the boot-time clock of the deciding process: what has not gone out by then must not go out at all.
    send_by_s: float = field(default=math.inf, compare=False)
