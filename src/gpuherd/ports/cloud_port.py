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
    """A place that rents machines. Every call may raise `CloudUnavailable`: surely nothing happened.

    Calls that only read are repeated inside where that helps; calls that change something never are, and they
    are not sent after `send_by_s` of the boot-time clock: whoever decided on them may have slept since.
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
        """Return if the registry credential exists; `NotFound` (REGISTRY_AUTH_NOT_FOUND) if it does not.

        The credential itself never comes back from here.
        """
        ...

    async def list_machines(self) -> Listing:
        """Return all machines of the account, and whether the pages fitted together."""
        ...

    async def get_machine(self, cloud_id: str) -> Machine:
        """Return one machine with its connection details; `MachineGone` if the cloud has no such machine."""
        ...

    async def get_log_addresses(self, cloud_id: str) -> LogAddresses:
        """Return where the logs of a machine are streamed; `MachineGone` if there is no such machine."""
        ...

    async def create_machine(self, order: CreateCall) -> str:
        """Rent one machine and return its id. The call is made once, whatever happens.

        `OutOfStock`, `CloudRefused`, `CloudUnavailable`: surely not rented.
        `OutcomeUnknown`: it may be rented; the caller must look for the tag before any further try.
        """
        ...

    async def start_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        """Ask for a start; `OutOfStock`, `CloudRefused`, `MachineGone` or `OutcomeUnknown` if need be."""
        ...

    async def stop_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        """Ask for a stop."""
        ...

    async def restart_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        """Ask for a restart; `CloudRefused`, `MachineGone` or `OutcomeUnknown` if need be."""
        ...

    async def delete_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        """Ask for the removal. Quiet when the machine is already gone."""
        ...


class NetworkVolumes(Protocol):
    """The account's network volumes. Every call may raise `CloudUnavailable`: surely nothing happened."""

    async def create_volume(self, order: VolumeOrder, send_by_s: float = math.inf) -> str:
        """Make one volume and return its id. The call is made once, whatever happens.

        `Conflict` (VOLUMES_NOT_SUPPORTED), `CloudRefused`: surely not made.
        `OutcomeUnknown`: it may be there; the caller must look for its name before any further try.
        """
        ...

    async def delete_volume(self, volume_id: str) -> None:
        """Remove a volume with its data; `NotFound` (VOLUME_NOT_FOUND), `Conflict` (VOLUME_IN_USE)."""
        ...


class RegistryCredentials(Protocol):
    """The account's logins to registries. Every call may raise `CloudUnavailable`: surely nothing happened.

    No password ever comes back from here.
    """

    async def list_credentials(self) -> tuple[RegistryCredential, ...]:
        """Return all of them."""
        ...


class ImagePrewarms(Protocol):
    """The account's image prewarm tasks. Every call may raise `CloudUnavailable`: surely nothing happened.

    No password ever comes back from here, also not in the reason of a failure.
    """

    async def list_prewarms(self) -> tuple[Prewarm, ...]:
        """Return all of them, or raise: what is only not shown would look like what was never made."""
        ...

    async def prewarm_quota(self) -> PrewarmQuota:
        """Return how many there are and may be."""
        ...

    async def create_prewarm(self, order: PrewarmOrder) -> str:
        """Begin to pull an image and return the id of the task. The call is made once, whatever happens.

        `CloudRefused`: surely not made, perhaps because the quota is used up.
        `OutcomeUnknown`: it may be there; the caller must look for it before any further try.
        """
        ...

    async def delete_prewarm(self, prewarm_id: str) -> None:
        """Remove a task and what it has pulled; `NotFound` (PREWARM_NOT_FOUND)."""
        ...
