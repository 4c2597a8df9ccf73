"""What the account owns besides machines: templates, registry logins, network volumes, image prewarms."""

from __future__ import annotations

import math
import uuid
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from gpuherd.simulator.simulated_bill import (
    VOLUME,
    Charge,
    Dated,
    Span,
    cut,
    volume_usd_per_hour,
)
from gpuherd.simulator.simulated_catalogue import (
    DISK_GB_MAX,
    CloudCatalogue,
    RegistryAuth,
    StoredTemplate,
)
from gpuherd.simulator.simulated_request import (
    Fields,
    SimulatedError,
    invalid,
    not_found,
    read_envs,
)

_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class AccountJob:
    """Background work that a call started."""

    id: str
    kind: str
    machine_id: str
    created_at: float
    done_at: float

    def state(self, now: float) -> str:
        return "success" if now >= self.done_at else "running"


class Account:
    """Templates and registry logins of the account. Official templates belong to the cloud."""

    def __init__(self, catalogue: CloudCatalogue, rng: Random) -> None:
        self._rng = rng
        self._private_images = catalogue.private_images
        self.templates = {template.id: template for template in catalogue.templates}
        self.registry_auths = {auth.id: auth for auth in catalogue.registry_auths}
        self.jobs: list[AccountJob] = []

    def template(self, template_id: str) -> StoredTemplate:
        if template_id not in self.templates:
            raise SimulatedError(400, "TEMPLATE_NOT_FOUND", "template not found")
        return self.templates[template_id]

    def add_template(self, fields: Fields, now: float) -> str:
        template_id = str(1 + max((int(known) for known in self.templates), default=0))
        self.templates[template_id] = self._read_template(fields, template_id, now)
        return template_id

    def change_template(self, fields: Fields) -> str:
        known = self._own_template(fields.text("Id", shortest=1))
        self.templates[known.id] = self._read_template(fields, known.id, known.created_at)
        return known.id

    def remove_template(self, template_id: str) -> str:
        del self.templates[self._own_template(template_id).id]
        return template_id

    def save_registry_auth(self, name: str, username: str, password: str) -> str:
        auth_id = "".join(self._rng.choices(_BASE36, k=32))
        self.registry_auths[auth_id] = RegistryAuth(auth_id, name, username, password)
        return auth_id

    def remove_registry_auth(self, auth_id: str, *, in_use: bool) -> None:
        if auth_id not in self.registry_auths:
            raise not_found("repository auth")
        if in_use or any(template.image_auth_id == auth_id for template in self.templates.values()):
            raise SimulatedError(400, "IMAGE_AUTH_IN_USE", "the image auth is in use")
        del self.registry_auths[auth_id]

    def may_pull(self, image_url: str, image_auth_id: str, image_auth: str = "") -> bool:
        """Return True if the registry accepts the login of the request for the image."""
        for prefix, auth_id in self._private_images:
            if image_url.startswith(prefix):
                auth = self.registry_auths.get(auth_id)
                login = f"{auth.username}:{auth.password}" if auth else None
                return image_auth_id == auth_id or image_auth == login
        return True

    def add_job(self, kind: str, machine_id: str, now: float, done_at: float) -> str:
        job = AccountJob(f"job-{len(self.jobs) + 1}", kind, machine_id, now, done_at)
        self.jobs.append(job)
        return job.id

    def _own_template(self, template_id: str) -> StoredTemplate:
        template = self.template(template_id)
        if template.channel == "official":
            raise SimulatedError(403, "FORBIDDEN", "an official template cannot be changed")
        return template

    def _read_template(self, fields: Fields, template_id: str, now: float) -> StoredTemplate:
        auth_id = fields.text("imageAuth")
        if auth_id and auth_id not in self.registry_auths:
            raise not_found("repository auth")
        plain = StoredTemplate(
            id=template_id,
            name=fields.text("name", shortest=1),
            image=fields.text("image", shortest=1, longest=500),
            created_at=int(now),
        )
        return replace(
            plain,
            readme=fields.text("readme", longest=102_400),
            kind=fields.one_of("type", ("instance", "serverless"), "instance"),
            channel=fields.one_of("channel", ("private", "community"), "private"),
            image_auth_id=auth_id,
            start_command=fields.text("startCommand", longest=2047),
            entrypoint=fields.text("entrypoint", longest=2047),
            disk_gb=fields.whole("rootfsSize", low=1, high=DISK_GB_MAX),
            ports=_read_ports(fields),
            envs=read_envs(fields),
            tools=tuple(
                (tool.text("name"), tool.whole("port", low=1, high=65535), tool.text("type"))
                for tool in fields.items("tools", most=10)
            ),
            min_cuda_version=fields.text("minCudaVersion"),
        )


def _read_ports(fields: Fields) -> tuple[tuple[int, str], ...]:
    ports = [
        (number, entry.one_of("type", ("http", "tcp", "udp"), "http"))
        for entry in fields.items("ports", most=10)
        for number in entry.numbers("ports", most=10, low=1, high=65535)
    ]
    if len(ports) > 10:
        raise invalid("ports", "must not name more than 10 ports")
    return tuple(ports)


SIZE_GB_MIN = 10
SIZE_GB_MAX = 4096


@dataclass(frozen=True, slots=True)
class NetworkVolume:
    """A volume and its sizes over time."""

    id: str
    name: str
    cluster_id: str
    created_at: float
    sizes: tuple[Dated, ...]
    deleted_at: float | None = None

    @property
    def size_gb(self) -> int:
        return self.sizes[-1].value

    def charges(self, now: float) -> list[Charge]:
        whole = Span(self.created_at, now if self.deleted_at is None else min(now, self.deleted_at))
        return [
            Charge(self.id, VOLUME, span, size_gb, volume_usd_per_hour(size_gb))
            for span, size_gb in cut(whole, self.sizes)
        ]


@dataclass(slots=True)
class Volumes:
    """All volumes ever made. Deleted ones stay for the bill."""

    catalogue: CloudCatalogue
    rng: Random
    all: dict[str, NetworkVolume] = field(default_factory=dict)

    def listed(self) -> list[NetworkVolume]:
        """Return the existing volumes, newest first."""
        return [volume for volume in reversed(self.all.values()) if volume.deleted_at is None]

    def find(self, volume_id: str) -> NetworkVolume:
        volume = self.all.get(volume_id)
        if volume is None or volume.deleted_at is not None:
            raise SimulatedError(400, "NETWORK_STORAGE_NOT_FOUND", "network storage not found")
        return volume

    def create(self, name: str, cluster_id: str, size_gb: int, now: float) -> NetworkVolume:
        cluster = self.catalogue.cluster(cluster_id)
        if cluster is None:
            raise not_found("cluster")
        if not cluster.network_storage:
            raise SimulatedError(
                400, "CUR_CLUSTER_NETWORK_STORAGE_NOT_SUPPORT", "the cluster has no network storage"
            )
        volume_id = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        volume = NetworkVolume(volume_id, name, cluster_id, now, (Dated(now, _checked(size_gb)),))
        self.all[volume_id] = volume
        return volume

    def change(self, volume_id: str, name: str, size_gb: int, now: float) -> NetworkVolume:
        """Rename a volume and let it grow; it never shrinks."""
        volume = self.find(volume_id)
        if size_gb < volume.size_gb:
            raise invalid("storageSize", "a volume cannot shrink")
        sizes = volume.sizes
        if size_gb > volume.size_gb:
            sizes = (*sizes, Dated(now, _checked(size_gb)))
        self.all[volume_id] = volume = replace(volume, name=name or volume.name, sizes=sizes)
        return volume

    def delete(self, volume_id: str, now: float, mounted: Collection[str]) -> None:
        volume = self.find(volume_id)
        if volume_id in mounted:
            raise SimulatedError(400, "NETWORK_STORAGE_IN_USE", "the network storage is in use")
        self.all[volume_id] = replace(volume, deleted_at=now)

    def check_mount(self, volume_id: str, cluster_id: str) -> None:
        """Reject a volume that does not exist or lies elsewhere."""
        if self.find(volume_id).cluster_id != cluster_id:
            raise SimulatedError(
                400, "NETWORK_STORAGE_UNAVAILABLE", "the network storage is in another cluster"
            )


def _checked(size_gb: int) -> int:
    if size_gb > SIZE_GB_MAX:
        raise SimulatedError(400, "NETWORK_STORAGE_TOO_LARGE", f"a volume has at most {SIZE_GB_MAX} GB")
    if size_gb < SIZE_GB_MIN:
        raise invalid("storageSize", f"must be at least {SIZE_GB_MIN}")
    return size_gb


TASKS_MAX = 5
IMAGE_GB_MAX = 100
GB = 10**9


# The share of a pull that is left if the image is already there.
PREWARMED_SHARE = 0.1


PENDING, RUNNING, SUCCEEDED, FAILED = STATES = ("Pending", "Running", "Succeeded", "Failed")
PULLED = "image pulled successfully"


# A separate generator, so that a prewarm does not change which machines are drawn later.
_SEED = 20_28


@dataclass(frozen=True, slots=True)
class PrewarmRequest:
    """The body of a create; without products it is for the whole cluster."""

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
    # None for a pull that never ends.
    done_at: float | None
    # Why it will fail; empty if it will not.
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
        """Return the text about the end. Successful tasks have one too."""
        return [self.failure or PULLED] if self.is_done(now) else []

    def serves(self, image_url: str, cluster_id: str, product_id: str, now: float) -> bool:
        """Return True if a machine that boots now finds its image there."""
        here = (self.image_url, self.cluster_id) == (image_url, cluster_id)
        for_it = not self.product_ids or product_id in self.product_ids
        return here and for_it and not self.deleted and self.state(now) == SUCCEEDED


@dataclass(slots=True)
class Prewarms:
    """All tasks ever made. A deleted task keeps its id reserved."""

    catalogue: CloudCatalogue
    rng: Random = field(default_factory=lambda: Random(_SEED))
    all: dict[str, PrewarmTask] = field(default_factory=dict)
    tasks_max: int = TASKS_MAX
    image_gb_max: int = IMAGE_GB_MAX

    def listed(self) -> list[PrewarmTask]:
        """Return the existing tasks, newest first."""
        return [task for task in reversed(self.all.values()) if not task.deleted]

    def find(self, task_id: str) -> PrewarmTask:
        task = self.all.get(task_id)
        if task is None or task.deleted:
            raise not_found("image prewarm task")
        return task

    def create(
        self, request: PrewarmRequest, now: float, *, pending_s: float, pull_s: float, failure: str
    ) -> str:
        """Create a task and return its id. Its end is decided now."""
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
        """Delete all of these; none if one of them does not exist."""
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
    """Return the size of an image: always the same for the same image, and below 25 GB."""
    return 500_000_000 + zlib.crc32(image_url.encode()) * 5
