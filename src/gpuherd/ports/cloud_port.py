"""What the use cases need of a cloud that rents machines."""

from __future__ import annotations

import math
from typing import Protocol

from gpuherd.domain.cloud.machine import Listing, LogAddresses, Machine
from gpuherd.domain.cloud.network_volume import VolumeOrder
from gpuherd.domain.cloud.offer import BillingMode, Offer, Region
from gpuherd.domain.cloud.template import (
    CreateCall,
    Prewarm,
    PrewarmOrder,
    PrewarmQuota,
    RegistryCredential,
    Template,
)


class Cloud(Protocol):
    """A cloud that rents machines. Every call may raise `CloudUnavailable`: certainly nothing happened.

    The adapter repeats reads if that helps. It never repeats changes, and it does not send them after
    `send_by_s` of the boot-time clock, because the deciding process may have slept.
    """

    async def list_regions(self) -> tuple[Region, ...]:
        """Return all regions."""
        ...

    async def list_offers(self, billing_mode: BillingMode) -> tuple[Offer, ...]:
        """Return every product in every region where it is sold, available or not."""
        ...

    async def list_templates(self) -> tuple[Template, ...]:
        """Return all templates that the key may use."""
        ...

    async def get_template(self, template_id: str) -> Template:
        """Return one template; `NotFound` (TEMPLATE_NOT_FOUND) if there is none."""
        ...

    async def check_registry_auth(self, auth_id: str) -> None:
        """Raise `NotFound` (REGISTRY_AUTH_NOT_FOUND) if the registry credential does not exist.

        The credential itself is never returned.
        """
        ...

    async def list_machines(self) -> Listing:
        """Return all machines of the account, and whether the pages fit together."""
        ...

    async def get_machine(self, cloud_id: str) -> Machine:
        """Return one machine with its connection details; `MachineGone` if the cloud has no such machine."""
        ...

    async def get_log_addresses(self, cloud_id: str) -> LogAddresses:
        """Return where the logs of a machine are streamed; `MachineGone` if there is no such machine."""
        ...

    async def create_machine(self, order: CreateCall) -> str:
        """Rent one machine and return its id. The call is sent once, whatever happens.

        `OutOfStock`, `CloudRefused`, `CloudUnavailable`: certainly not rented. `OutcomeUnknown`: it may be
        rented. The caller must look for the tag before any further try.
        """
        ...

    async def start_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        """Request a start. May raise `OutOfStock`, `CloudRefused`, `MachineGone` or `OutcomeUnknown`."""
        ...

    async def stop_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        """Request a stop."""
        ...

    async def restart_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        """Request a restart. May raise `CloudRefused`, `MachineGone` or `OutcomeUnknown`."""
        ...

    async def delete_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        """Request the removal. Succeeds if the machine is already gone."""
        ...


class NetworkVolumes(Protocol):
    """The account's network volumes. Every call may raise `CloudUnavailable`: certainly nothing happened."""

    async def create_volume(self, order: VolumeOrder, send_by_s: float = math.inf) -> str:
        """Make one volume and return its id. The call is sent once, whatever happens.

        `Conflict` (VOLUMES_NOT_SUPPORTED), `CloudRefused`: certainly not made. `OutcomeUnknown`: it may
        exist. The caller must look for its name before any further try.
        """
        ...

    async def delete_volume(self, volume_id: str) -> None:
        """Remove a volume with its data; `NotFound` (VOLUME_NOT_FOUND), `Conflict` (VOLUME_IN_USE)."""
        ...


class RegistryCredentials(Protocol):
    """The account's registry logins. Every call may raise `CloudUnavailable`: certainly nothing happened.

    Passwords are never returned.
    """

    async def list_credentials(self) -> tuple[RegistryCredential, ...]:
        """Return all registry logins."""
        ...


class ImagePrewarms(Protocol):
    """The account's image prewarm tasks. Every call may raise `CloudUnavailable`: certainly nothing happened.

    Passwords are never returned, also not in the reason of a failure.
    """

    async def list_prewarms(self) -> tuple[Prewarm, ...]:
        """Return all tasks, or raise an error.

        A partial list would make a task look as if it was never made.
        """
        ...

    async def prewarm_quota(self) -> PrewarmQuota:
        """Return how many tasks there are and may be."""
        ...

    async def create_prewarm(self, order: PrewarmOrder) -> str:
        """Begin to pull an image and return the id of the task. The call is sent once, whatever happens.

        `CloudRefused`: certainly not made, perhaps because the quota is used up. `OutcomeUnknown`: it may
        exist. The caller must look for it before any further try.
        """
        ...

    async def delete_prewarm(self, prewarm_id: str) -> None:
        """Remove a task and what it has pulled; `NotFound` (PREWARM_NOT_FOUND)."""
        ...
