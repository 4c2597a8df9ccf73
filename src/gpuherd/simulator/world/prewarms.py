"""Image prewarm tasks: an image is pulled into a cluster ahead of the machines that will run it."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from gpuherd.simulator.catalogue import CloudCatalogue
from gpuherd.simulator.errors import SimulatedError, not_found

TASKS_MAX = 5
IMAGE_GB_MAX = 100
GB = 10**9
# What is left of a pull where the image is already there.
PREWARMED_SHARE = 0.1
PENDING, RUNNING, SUCCEEDED, FAILED = STATES = ("Pending", "Running", "Succeeded", "Failed")
PULLED = "image pulled successfully"

_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"
# Apart from the world's chance, so that a prewarm does not change which machines are drawn after it.
_SEED = 20_28


@dataclass(frozen=True, slots=True)
class PrewarmRequest:
    """What a create asks for; without products it is for the whole cluster."""

    image_url: str
    cluster_id: str
    auth_id: str = ""
    product_ids: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class PrewarmTask:
    """One task with its whole future; times are the world's Unix seconds."""

    id: str
    image_url: str
    cluster_id: str
    auth_id: str
    product_ids: tuple[str, ...]
    note: str
    created_at: float
    running_at: float
    # None of a pull that never ends.
    done_at: float | None
    # Why it will fail; empty where it will not.
    failure: str = ""
    deleted: bool = False

    @property
    def image_name(self) -> str:
        return self.image_url.partition("@")[0].rpartition("/")[2].partition(":")[0]

    @property
    def size_bytes(self) -> int:
        return image_bytes(self.image_url)

    def is_done(self, now: float) -> bool:
        return self.done_at is not None and now >= self.done_at

    def state(self, now: float) -> str:
        if now < self.running_at:
            return PENDING
        if not self.is_done(now):
            return RUNNING
        return FAILED if self.failure else SUCCEEDED

    def reasons(self, now: float) -> list[str]:
        """Return what is said about the end, which is not only said of bad ones."""
        return [self.failure or PULLED] if self.is_done(now) else []

    def serves(self, image_url: str, cluster_id: str, product_id: str, now: float) -> bool:
        """Return True if a machine that boots now finds its image there."""
        here = (self.image_url, self.cluster_id) == (image_url, cluster_id)
        for_it = not self.product_ids or product_id in self.product_ids
        return here and for_it and not self.deleted and self.state(now) == SUCCEEDED


@dataclass(slots=True)
class Prewarms:
    """All tasks that ever were: a deleted one keeps its id from being drawn again."""

    catalogue: CloudCatalogue
    rng: Random = field(default_factory=lambda: Random(_SEED))
    all: dict[str, PrewarmTask] = field(default_factory=dict)
    tasks_max: int = TASKS_MAX
    image_gb_max: int = IMAGE_GB_MAX

    def listed(self) -> list[PrewarmTask]:
        """Return those that exist, newest first."""
        return [task for task in reversed(self.all.values()) if not task.deleted]

    def find(self, task_id: str) -> PrewarmTask:
        task = self.all.get(task_id)
        if task is None or task.deleted:
            raise not_found("image prewarm task")
        return task

    def create(
        self, request: PrewarmRequest, now: float, *, pending_s: float, pull_s: float, failure: str
    ) -> str:
        """Take on a task, whose end is known to the world from its beginning, and return its id."""
        self._check(request)
        if not failure and image_bytes(request.image_url) > self.image_gb_max * GB:
            failure = f"the image is larger than {self.image_gb_max} GB"
        task_id = self._new_id()
        self.all[task_id] = PrewarmTask(
            task_id,
            request.image_url,
            request.cluster_id,
            request.auth_id,
            request.product_ids,
            request.note,
            created_at=now,
            running_at=now + pending_s,
            done_at=now + pending_s + pull_s if math.isfinite(pull_s) else None,
            failure=failure,
        )
        return task_id

    def change_note(self, task_id: str, note: str) -> None:
        self.all[task_id] = replace(self.find(task_id), note=note)

    def delete(self, task_ids: Sequence[str]) -> None:
        """Remove all of these, or none where one of them is not there."""
        for task in [self.find(task_id) for task_id in task_ids]:
            self.all[task.id] = replace(task, deleted=True)

    def is_warm(self, image_url: str, cluster_id: str, product_id: str, now: float) -> bool:
        return any(task.serves(image_url, cluster_id, product_id, now) for task in self.all.values())

    def _check(self, request: PrewarmRequest) -> None:
        if self.catalogue.cluster(request.cluster_id) is None:
            raise not_found("cluster")
        for product_id in request.product_ids:
            product = self.catalogue.product(product_id)
            if product is None or request.cluster_id not in product.cluster_ids:
                raise not_found("product")
        if len(self.listed()) >= self.tasks_max:
            raise SimulatedError(
                400, "OPERATION_LIMIT", f"the limit of {self.tasks_max} image prewarm tasks is reached"
            )

    def _new_id(self) -> str:
        while (task_id := "".join(self.rng.choices(_BASE36, k=16))) in self.all:
            continue
        return task_id


def image_bytes(image_url: str) -> int:
    """Return how large an image is: always the same for the same one, and below 25 GB."""
    return 500_000_000 + zlib.crc32(image_url.encode()) * 5
