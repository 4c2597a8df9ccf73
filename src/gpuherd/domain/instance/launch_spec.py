"""What a user asks for: product, place, price, image, environment, ports, volumes, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from operator import attrgetter

from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.secret import HIDDEN, Secret


class OnFailure(StrEnum):
    """What happens to the machine when the create fails or times out."""

    DELETE = "delete"
    KEEP = "keep"


class Optimize(StrEnum):
    """What is more important: the order of the regions, or the price."""

    REGION = "region"
    PRICE = "price"


@dataclass(frozen=True)
class LaunchSpec:
    """What the user asks for."""

    # The first of the names, if there are several.
    product_name: str
    # Empty if an image is given instead.
    template_id: str
    gpu_num: int = 1
    disk_gb: int = 60
    # Codes, best first; empty means anywhere.
    regions: tuple[str, ...] = ()
    billing_mode: BillingMode = BillingMode.SPOT
    hourly_usd_max: Decimal | None = None
    optimize: Optimize = Optimize.REGION
    # How long to wait for a matching offer if there is none now.
    capacity_wait_s: int = 0
    # All accepted products, best first; empty if there is only one.
    product_names: tuple[str, ...] = ()
    # A spot spec accepts on-demand offers after this wait; None: never.
    fallback_after_s: int | None = None
    # What runs, beside or instead of the template. These values win; variables are merged.
    image_url: str | None = None
    command: str | None = None
    # As `8888/http`.
    ports: tuple[str, ...] | None = None
    min_cuda_version: str | None = None
    registry_auth_id: str | None = None
    envs: tuple[EnvVar, ...] = ()
    # Network volumes of the account. They determine the region.
    volumes: tuple[VolumeMount, ...] = ()

    @property
    def needs_template(self) -> bool:
        """True if the template is a part of what runs."""
        return bool(self.template_id) or self.image_url is None

    @property
    def inputs(self) -> GivenInputs:
        """The values that replace those of the template."""
        # The common case.
        if _given(self) == _NOTHING_GIVEN:
            return NO_INPUTS
        return GivenInputs(
            image_url=self.image_url,
            command=self.command,
            ports=self.ports,
            min_cuda_version=self.min_cuda_version,
            registry_auth_id=self.registry_auth_id,
            env_names=tuple([it.name for it in self.envs]),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all accepted products, best first."""
        return self.product_names or (self.product_name,)

    @property
    def patience_s(self) -> int:
        """How long the rental may take; 0: now or never."""
        return max(self.capacity_wait_s, self.fallback_after_s or 0)


_given = attrgetter("image_url", "command", "ports", "min_cuda_version", "registry_auth_id", "envs")
_NOTHING_GIVEN = (None, None, None, None, None, ())


@dataclass(frozen=True, kw_only=True)
class GivenInputs:
    """The values that replace those of the template; None keeps the template's value."""

    image_url: str | None = None
    command: str | None = None
    ports: tuple[str, ...] | None = None
    min_cuda_version: str | None = None
    registry_auth_id: str | None = None
    # Names of the variables beside those of the template.
    env_names: tuple[str, ...] = ()


NO_INPUTS = GivenInputs()
DOCKER_HUB = "docker.io"


def registry_of(image: str) -> str:
    """Return the host from which an image is pulled."""
    first, slash, _ = image.partition("/")
    is_host = slash and ("." in first or ":" in first or first == "localhost")
    return first.casefold() if is_host else DOCKER_HUB


# Carries the tag of the machine beside its name; the contract refuses it to users.
TAG_VARIABLE = "GPUHERD_TAG"


# The cloud's maximum; one of them is the tag.
ENVS_MAX = 100


# Values of at least this length are redacted even in part. A shorter one may be an ordinary word.
CREDENTIAL_CHARS = 8


@dataclass(frozen=True)
class GivenEnv:
    """A variable of a request: with its value, or with the name of the secret that holds it."""

    name: str
    value: Secret | None = None
    secret: str = ""


@dataclass(frozen=True)
class EnvVar:
    """A stored variable: with its sealed value, or with the name of the secret."""

    name: str
    sealed: str = field(default="", repr=False)
    secret: str = ""

    @property
    def shown(self) -> str | dict[str, str]:
        """What everyone may see of its value."""
        return {"secret": self.secret} if self.secret else HIDDEN


@dataclass(frozen=True)
class OpenedEnv:
    """A variable with its value, at the moment of the create call."""

    name: str
    value: Secret
    is_named_secret: bool = False

    @property
    def is_credential(self) -> bool:
        """True if even a part of the value must be redacted."""
        return self.is_named_secret or len(self.value.reveal()) >= CREDENTIAL_CHARS


def shown_envs(envs: Sequence[EnvVar]) -> dict[str, str | dict[str, str]]:
    """Return what everyone may see of the variables: their names, and the names of secrets."""
    return {it.name: it.shown for it in envs}


RESERVED_PORTS = frozenset({2222, 2223, 2224})
MAX_PORTS = 15
PORT_KINDS = ("http", "tcp")


def parse_ports(texts: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """Return number and type of each port. The body of the launch has checked the texts."""
    parts = (text.partition("/") for text in texts)
    return tuple((int(number), kind) for number, _, kind in parts)


def port_text(port: tuple[int, str]) -> str:
    """Return a port in the form that people write."""
    return f"{port[0]}/{port[1]}"


def number_problem(number: int) -> str | None:
    """Return why a port cannot be opened; None if it can."""
    if not 1 <= number <= 65535 or number in RESERVED_PORTS:
        return f"port {number} cannot be used"
    return None


@dataclass(frozen=True)
class VolumeMount:
    """One volume of the account at one path."""

    volume_id: str
    mount_path: str
