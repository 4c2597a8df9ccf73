"""What the account keeps for the images of machines: registry credentials and templates."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuherd.domain.access.secret import Secret

# So many Novita takes in a template; a machine may open more.
TEMPLATE_PORTS_MAX = 10
TEMPLATE_DISK_GB = 60


@dataclass(frozen=True)
class RegistryCredential:
    """A login to a registry, without its password."""

    auth_id: str
    name: str
    username: str


@dataclass(frozen=True)
class CredentialOrder:
    """A login to be kept by the cloud. The password goes there, and nowhere else."""

    name: str
    username: str
    password: Secret


@dataclass(frozen=True)
class TemplateDraft:
    """What a template shall say; None: nothing about this."""

    name: str | None = None
    image: str | None = None
    registry_auth_id: str | None = None
    command: str | None = None
    entrypoint: str | None = None
    ports: tuple[tuple[int, str], ...] | None = None
    # Hidden from repr: people keep tokens in here.
    envs: tuple[tuple[str, str], ...] | None = field(default=None, repr=False)
    disk_gb: int | None = None
    min_cuda_version: str | None = None
