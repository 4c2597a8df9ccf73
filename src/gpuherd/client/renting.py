"""A rental from the first word to the last: rent, wait until it is usable, and release it whatever happens.

The hard part is an interruption while the create is on its way: there may be an instance whose id nobody
knows. The same create with the same key then brings its id to light (or makes it, if the first never
arrived), and it is deleted like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpuherd.client.effects import Effects
from gpuherd.client.errors import ApiError, Conflict, GpuherdError, NotFound, NotReleased
from gpuherd.client.models.instance import Instance
from gpuherd.client.resources.instances import create_request, order_request, path_of
from gpuherd.client.retrying import RetryingCaller, RetryPolicy
from gpuherd.client.transport.wire import Request
from gpuherd.client.waiting import Listeners, OnProgress, follow
from gpuherd.client.wish import Wish

Release = Literal["delete", "stop"]

# Long enough for a server to be restarted; every second of a forgotten machine costs money.
RELEASE_RETRIES = RetryPolicy(tries=1000, span_s=120.0, retry_statuses=frozenset({429, 500, 502, 503, 504}))
# One answer must not use up the whole time.
RELEASE_TIMEOUT_S = 15.0
# To these there is nothing that could have been made.
NOT_CREATED_STATUSES = frozenset({400, 404, 409, 413, 422})
# A machine in these states needs no stop.
STOPPED_STATUSES = frozenset({"exited", "deleting", "deleted"})

log = logging.getLogger("gpuherd.client")


@dataclass(frozen=True)
class Terms:
    """What was agreed before anything is asked."""

    name: str
    create: Request
    timeout_s: float
    on_progress: OnProgress | None
    release: Release
    keep_on_error: bool


class Rental:
    """The steps of one rental, and what is known of it in between."""

    def __init__(self, caller: RetryingCaller, terms: Terms) -> None:
        self._caller = caller
        self._terms = terms
        self._instance: Instance | None = None
        # A create has been sent, or may have been, and nobody knows what came of it.
        self._unanswered = False
        self._was_usable = False

    def begin(self) -> Effects[Instance]:
        """Rent, and return the instance when it can be used."""
        terms, self._unanswered = self._terms, True
        try:
            answer = yield from self._caller.call(terms.create)
            made = Instance.of(answer)
        except GpuherdError as trouble:
            self._unanswered = trouble.may_have_happened
            raise
        self._instance = made
        listeners = Listeners(terms.on_progress)
        self._instance = yield from follow(self._caller, made, "ready", terms.timeout_s, listeners)
        self._was_usable = True
        return self._instance

    def end(self, error: BaseException | None) -> Effects[None]:
        """Release it, or say loudly that it could not be released."""
        if self._is_kept(error):
            return
        try:
            yield from self._release()
        except BaseException as trouble:
            message = self._not_released_message(trouble)
            log.critical(message)
            if not isinstance(trouble, Exception):
                # Somebody insists on leaving: say it once more on the way out.
                trouble.add_note(message)
                raise
            if error is None:
                raise NotReleased(message, self._terms.name, self._instance) from trouble
            # What went wrong in the first place must not be hidden by this.
            error.add_note(message)

    def _is_kept(self, error: BaseException | None) -> bool:
        it = self._instance
        # An interrupt or a cancellation is somebody leaving, not something to look into later.
        if it is None or not self._terms.keep_on_error or not isinstance(error, Exception):
            return False
        message = f"{it.name} ({it.id}) is kept because of an error, and costs {_price(it)}; {_remedy(it.id)}"
        log.warning(message)
        error.add_note(message)
        return True

    def _release(self) -> Effects[None]:
        if self._instance is None and self._unanswered:
            self._instance = yield from self._identify()
        if self._instance is None:
            return
        yield from self._give_back(self._instance.id)
        body = self._terms.create.body
        if not isinstance(body, dict) or body.get("onReclaim") != "replace":
            return
        # Another one may have taken over before this was accepted; after that, none does.
        while (heir_id := (yield from self._heir_of(self._instance.id))) is not None:
            self._instance = replace(self._instance, id=heir_id)
            yield from self._give_back(heir_id)

    def _give_back(self, instance_id: str) -> Effects[None]:
        # What never was usable holds nothing worth keeping.
        what: Release = self._terms.release if self._was_usable else "delete"
        request = order_request(self._caller, what, instance_id, None)
        try:
            yield from self._caller.call(replace(request, timeout_s=RELEASE_TIMEOUT_S), RELEASE_RETRIES)
        except NotFound:
            return
        except Conflict as conflict:
            if what != "stop" or conflict.details.get("status") not in STOPPED_STATUSES:
                raise

    def _heir_of(self, instance_id: str) -> Effects[str | None]:
        request = Request("GET", path_of(instance_id), timeout_s=RELEASE_TIMEOUT_S)
        try:
            return Instance.of((yield from self._caller.call(request, RELEASE_RETRIES))).replaced_by
        except NotFound:
            return None

    def _identify(self) -> Effects[Instance | None]:
        """Return what became of a create without an answer."""
        request = replace(self._terms.create, timeout_s=RELEASE_TIMEOUT_S)
        try:
            return Instance.of((yield from self._caller.call(request, RELEASE_RETRIES)))
        except ApiError as refused:
            if refused.status in NOT_CREATED_STATUSES:
                return None
            raise

    def _not_released_message(self, trouble: BaseException) -> str:
        why = str(trouble) or type(trouble).__name__
        if (it := self._instance) is not None:
            release = self._terms.release if self._was_usable else "delete"
            whose = f"{it.name} ({it.id}) may still run and cost {_price(it)}: its {release} was not accepted"
            return f"{whose} ({why}); {_remedy(it.id)}"
        return (
            f"an instance called {self._terms.name!r} may have been rented and may cost money: the server "
            f"did not tell ({why}); look for it with: gpuherd ls"
        )


def _price(it: Instance) -> str:
    return "money" if it.hourly_price is None else f"${it.hourly_price} an hour"


def _remedy(instance_id: str) -> str:
    return f"remove it with: gpuherd rm {instance_id}"


def terms_of(
    caller: RetryingCaller,
    name: str,
    product_name: str | Sequence[str],
    template_id: str | int | None,
    wish: Wish,
    *,
    timeout_s: float,
    on_progress: OnProgress | None,
    release: Release,
    keep_on_error: bool,
) -> Terms:
    """Return the terms, under a key of their own."""
    if release not in ("delete", "stop"):
        # Found out at the end, it would be too late.
        raise ValueError("release must be 'delete' or 'stop'")
    create = create_request(name, product_name, template_id, wish, caller.new_key())
    return Terms(name, create, timeout_s, on_progress, release, keep_on_error)
