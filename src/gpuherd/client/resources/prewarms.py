"""Image prewarm: an image is pulled into a region before a machine needs it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gpuherd.client.effects import Effects, pause
from gpuherd.client.errors import ApiError, ConnectionFailed, NotFound, PrewarmFailed, PrewarmTimedOut
from gpuherd.client.methods import Resource, api_method
from gpuherd.client.models.account import Prewarm, PrewarmQuota, PrewarmRemoved
from gpuherd.client.paging import Items, items_of
from gpuherd.client.transport.wire import get, path_segment

PREWARMS = "/api/prewarms"
PREWARM_WAIT_S = 3600.0
# The server looks at the cloud no more often.
POLL_INTERVAL_S = 5.0
# Another replica may have looked just before the task was made.
LISTED_WITHIN_S = 15.0


class PrewarmMethods(Resource):
    """`herd.prewarms`."""

    @api_method
    def list(self, *, state: str | None = None, region: str | None = None) -> Effects[Items[Prewarm]]:
        """Return the account's tasks, newest first; only those in a state or region, if one is said."""
        answer = yield from self._caller.call(get(PREWARMS, state=state, region=region))
        return items_of(answer, "prewarms", Prewarm.of)

    @api_method
    def quota(self) -> Effects[PrewarmQuota]:
        """Return how many tasks there are and may be, and how large an image may be."""
        answer = yield from self._caller.call(get(PREWARMS))
        return PrewarmQuota.of(answer.get("quota"))

    @api_method
    def create(
        self,
        image_url: str,
        region: str,
        *,
        registry_auth_id: str | None = None,
        products: Sequence[str] | None = None,
        note: str | None = None,
    ) -> Effects[Prewarm]:
        """Have an image pulled; `Conflict` (PREWARM_EXISTS, PREWARM_QUOTA_EXCEEDED) if it cannot be.

        Without `products` (ids or names) it is for the whole region. A lost answer is looked after, so it is
        one task however bad the network.
        """
        said = {
            "imageUrl": image_url,
            "region": region,
            "registryAuthId": registry_auth_id,
            "products": None if products is None else [*products],
            "note": note,
        }
        body = {key: value for key, value in said.items() if value is not None}
        return Prewarm.of((yield from self._caller.change("POST", PREWARMS, body)))

    @api_method
    def wait(
        self,
        prewarm: str | Prewarm,
        timeout_s: float = PREWARM_WAIT_S,
        on_progress: Callable[[Prewarm], None] | None = None,
    ) -> Effects[Prewarm]:
        """Return the task when it has succeeded; else `PrewarmFailed`, or `PrewarmTimedOut` if not in time.

        `on_progress` is called at once and then whenever the state changes.
        """
        clock, prewarm_id = self._caller.clock, _id_of(prewarm)
        began = clock.monotonic()
        seen: Prewarm | None = None
        while True:
            trouble: ApiError | ConnectionFailed | None = None
            try:
                task = yield from self._find(prewarm_id)
            except (ApiError, ConnectionFailed) as error:
                trouble = error
            else:
                if on_progress is not None and (seen is None or seen.state != task.state):
                    on_progress(task)
                seen = task
            spent_s = clock.monotonic() - began
            if seen is not None and seen.state == "succeeded":
                return seen
            if seen is not None and seen.state == "failed":
                raise PrewarmFailed(seen)
            if trouble is not None and not _passes(trouble, spent_s if seen is None else math.inf):
                raise trouble
            if spent_s >= timeout_s:
                raise PrewarmTimedOut(prewarm_id, seen, timeout_s, str(trouble or ""))
            yield from pause(min(POLL_INTERVAL_S, timeout_s - spent_s))

    @api_method
    def delete(self, prewarm: str | Prewarm) -> Effects[PrewarmRemoved]:
        """Delete a task, which makes room for another; machines that run are not touched."""
        path = f"{PREWARMS}/{path_segment(_id_of(prewarm))}"
        return PrewarmRemoved.of((yield from self._caller.change("DELETE", path)))

    def _find(self, prewarm_id: str) -> Effects[Prewarm]:
        answer = yield from self._caller.call(get(PREWARMS))
        for task in items_of(answer, "prewarms", Prewarm.of):
            if task.id == prewarm_id:
                return task
        raise NotFound(404, "PREWARM_NOT_FOUND", f"there is no prewarm task {prewarm_id}")


def _passes(trouble: ApiError | ConnectionFailed, spent_s: float) -> bool:
    """Tell whether to look again: an outage is waited out, and a new task may be listed late."""
    if isinstance(trouble, NotFound):
        return spent_s < LISTED_WITHIN_S
    return isinstance(trouble, ConnectionFailed) or trouble.is_temporary


def _id_of(prewarm: str | Prewarm) -> str:
    return prewarm if isinstance(prewarm, str) else prewarm.id
