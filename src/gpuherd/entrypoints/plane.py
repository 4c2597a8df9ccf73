"""The plane: every use case and every reader that an entrypoint may ask, put together once by bootstrap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuherd.clock import Clock, Ids
from gpuherd.domain.networks import TargetPolicy
from gpuherd.domain.secret import Secret
from gpuherd.ports.meter import Meter, MetricsPage
from gpuherd.ports.store import Flags, Instances, JobBook, Sightings
from gpuherd.usecases.catalogue import Catalogue
from gpuherd.usecases.change_goal import ChangeGoal
from gpuherd.usecases.find_instance import FindInstance
from gpuherd.usecases.launch_instance import LaunchInstance
from gpuherd.usecases.list_comprehensive import ListComprehensive
from gpuherd.usecases.read_instance import ReadInstance
from gpuherd.usecases.retry_job import RetryJob
from gpuherd.usecases.sync_cloud import SyncCloud
from gpuherd.usecases.tend_caches import TendCaches


@dataclass(frozen=True)
class Plane:
    """What the outside may use of the inside."""

    launch_instance: LaunchInstance
    find_instance: FindInstance
    read_instance: ReadInstance
    list_comprehensive: ListComprehensive
    sync_cloud: SyncCloud
    tend_caches: TendCaches
    change_goal: ChangeGoal
    retry_job: RetryJob
    instances: Instances
    sightings: Sightings
    jobs: JobBook
    flags: Flags
    catalogue: Catalogue
    targets: TargetPolicy
    admin_key: Secret
    clock: Clock
    ids: Ids
    breaker_state: Callable[[], str]
    meter: Meter
    metrics: MetricsPage
    # False before everything runs and as soon as a shutdown begins.
    is_ready: Callable[[], bool]
