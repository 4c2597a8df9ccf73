"""A rental: create, wait until the instance is usable, and release it whatever happens.

An interrupt may hit while the create is on its way. Then there may be an instance whose id the client does
not know. The same create under the same key returns its id (or makes it, if the first create never arrived),
and the client deletes it like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpuherd.client.client_connection import Connection, RetryPolicy, decode
from gpuherd.client.client_errors import ApiError, Conflict, GpuherdError, NotFound, NotReleased
from gpuherd.client.client_transport import Request
from gpuherd.client.follow_instance import Listeners, OnProgress, follow_instance, instance_path
from gpuherd.client.wish import Wish, create_body
from gpuherd.contract.instance_models import Instance

Release = Literal["delete", "stop"]

# Long enough for a restart of the server. Every second of a forgotten machine costs money.
RELEASE_RETRIES = RetryPolicy(tries=1000, span_s=120.0, retry_statuses=frozenset({429, 500, 502, 503, 504}))
# One answer must not use up the whole time.
RELEASE_TIMEOUT_S = 15.0
# A create with one of these answers has made nothing.
NOT_CREATED_STATUSES = frozenset({400, 404, 409, 413, 422})
# A machine in one of these states needs no stop.
STOPPED_STATUSES = frozenset({"exited", "deleting", "deleted"})

log = logging.getLogger("gpuherd.client")


@dataclass(frozen=True)
class RentalTerms:
    """What the caller of `rent` has chosen."""

    name: str
    create: Request
    timeout_s: float
    on_progress: OnProgress | None
    release: Release
    keep_on_error: bool


def rental_terms(
    connection: Connection,
    name: str,
    product_name: str | Sequence[str],
    template_id: str | int | None,
    wish: Wish,
    *,
    timeout_s: float,
    on_progress: OnProgress | None,
    release: Release,
    keep_on_error: bool,
) -> RentalTerms:
    """Return the terms with the create under a key of its own."""
    if release not in ("delete", "stop"):
        # At the end of the rental it would be too late.
        raise ValueError("release must be 'delete' or 'stop'")
    body = create_body(name, product_name, template_id, wish)
    create = connection.request("POST", "/api/instances", body)
    return RentalTerms(name, create, timeout_s, on_progress, release, keep_on_error)


class Rental:
    """One rental, and what the client knows of it."""

    def __init__(self, connection: Connection, terms: RentalTerms) -> None:
        # Says how to find and remove the machine, if the release has failed.
        self.warning = ""
        self._connection = connection
        self._terms = terms
        self._instance: Instance | None = None
        # The instance itself, later its replacement.
        self._instance_id = ""
        # The create may have been sent, and its outcome is not known.
        self._is_unanswered = False
        self._was_usable = False

    async def begin(self) -> Instance:
        """Rent, and return the instance when it is usable."""
        self._is_unanswered = True
        try:
            self._created(decode(Instance, await self._connection.call(self._terms.create)))
        except GpuherdError as error:
            self._is_unanswered = error.may_have_happened
            raise
        assert self._instance is not None
        listeners = Listeners(self._terms.on_progress)
        self._instance = await follow_instance(
            self._connection, self._instance, "ready", self._terms.timeout_s, listeners
        )
        self._was_usable = True
        return self._instance

    async def end(self, error: BaseException | None) -> None:
        """Release the instance. If that fails, log it and raise `NotReleased`, or add a note to `error`."""
        if self._is_kept(error):
            return
        try:
            await self._release()
        except BaseException as failure:
            self.warning = self._not_released_message(failure)
            log.critical(self.warning)
            if not isinstance(failure, Exception):
                # A second interrupt ends the release. It carries the warning out of the program.
                failure.add_note(self.warning)
                raise
            if error is None:
                raise NotReleased(self.warning, self._terms.name, self._instance) from failure
            # The failed release must not hide the first error.
            error.add_note(self.warning)

    def _created(self, instance: Instance) -> None:
        self._instance, self._instance_id = instance, instance.id

    def _is_kept(self, error: BaseException | None) -> bool:
        instance = self._instance
        # After an interrupt or a cancellation, no person examines the machine.
        if instance is None or not self._terms.keep_on_error or not isinstance(error, Exception):
            return False
        message = (
            f"{instance.name} ({instance.id}) is kept because of an error, and costs {_price(instance)}; "
            f"{_remedy(instance.id)}"
        )
        log.warning(message)
        error.add_note(message)
        return True

    async def _release(self) -> None:
        if self._instance is None and self._is_unanswered:
            await self._find_created()
        if self._instance is None:
            return
        await self._release_instance(self._instance_id)
        if (self._terms.create.body or {}).get("onReclaim") != "replace":
            return
        # A replacement may have taken over before the server accepted the release; after it, none does.
        while (replacement_id := await self._replacement_of(self._instance_id)) is not None:
            self._instance_id = replacement_id
            await self._release_instance(replacement_id)

    async def _find_created(self) -> None:
        """Find out what became of a create without an answer."""
        request = replace(self._terms.create, timeout_s=RELEASE_TIMEOUT_S)
        try:
            self._created(decode(Instance, await self._connection.call(request, RELEASE_RETRIES)))
        except ApiError as refused:
            if refused.status not in NOT_CREATED_STATUSES:
                raise

    async def _release_instance(self, instance_id: str) -> None:
        path = instance_path(instance_id)
        release = self._effective_release
        if release == "stop":
            request = self._connection.request("POST", f"{path}/stop", {})
        else:
            request = self._connection.request("DELETE", path)
        try:
            await self._connection.call(replace(request, timeout_s=RELEASE_TIMEOUT_S), RELEASE_RETRIES)
        except NotFound:
            return
        except Conflict as conflict:
            if release != "stop" or conflict.details.get("status") not in STOPPED_STATUSES:
                raise

    async def _replacement_of(self, instance_id: str) -> str | None:
        request = Request("GET", instance_path(instance_id), timeout_s=RELEASE_TIMEOUT_S)
        try:
            return decode(Instance, await self._connection.call(request, RELEASE_RETRIES)).replaced_by
        except NotFound:
            return None

    @property
    def _effective_release(self) -> Release:
        # An instance that never was usable holds no data of the user.
        return self._terms.release if self._was_usable else "delete"

    def _not_released_message(self, failure: BaseException) -> str:
        reason = str(failure) or type(failure).__name__
        if (instance := self._instance) is not None:
            return (
                f"{instance.name} ({self._instance_id}) may still run and cost {_price(instance)}: "
                f"its {self._effective_release} was not accepted ({reason}); {_remedy(self._instance_id)}"
            )
        return (
            f"an instance called {self._terms.name!r} may have been rented and may cost money: the server "
            f"did not tell ({reason}); look for it with: gpuherd ls"
        )


def _price(instance: Instance) -> str:
    return "money" if instance.hourly_price is None else f"${instance.hourly_price} an hour"


def _remedy(instance_id: str) -> str:
    return f"remove it with: gpuherd rm {instance_id}"
