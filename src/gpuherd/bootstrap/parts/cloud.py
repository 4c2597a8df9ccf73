"""Looking at the account: the observer, and the alarm of an installation that two databases share."""

from __future__ import annotations

from gpuherd.bootstrap.ports import Ports, Values
from gpuherd.usecases.cloud.account import AccountGuard
from gpuherd.usecases.cloud.catalogue import CatalogueCache
from gpuherd.usecases.cloud.installation_alarm import InstallationAlarm
from gpuherd.usecases.cloud.judge_list import JudgeList
from gpuherd.usecases.cloud.metering import PrepareMetering, ReadTariff
from gpuherd.usecases.cloud.observe import ObserveCloud
from gpuherd.usecases.cloud.vanishing import VanishingBrake
from gpuherd.usecases.jobs.kinds import JobFactory


def build_observer(
    ports: Ports,
    values: Values,
    job_factory: JobFactory,
    account: AccountGuard,
    vanishing: VanishingBrake,
    catalogue: CatalogueCache,
) -> ObserveCloud:
    """Return what lists the machines of the account."""
    stores, cloud = ports.stores, ports.watch_cloud or ports.cloud
    return ObserveCloud(
        cloud=cloud,
        observations=stores.observations,
        jobs=stores.book,
        job_factory=job_factory,
        clock=ports.clock,
        settling=values.settling,
        poll_interval=values.poll_interval,
        account=account,
        judge_list=JudgeList(cloud, stores.observations, values.settling),
        vanishing=vanishing,
        metering=PrepareMetering(
            observations=stores.observations,
            clock=ports.clock,
            boot_id=values.host_boot_id,
            installation=stores.installation,
            tariff=ReadTariff(catalogue),
        ),
        breaker_state=ports.breaker_state,
        history=stores.history,
        leadership=ports.leadership,
        flags=ports.replica_flags,
        tracer=ports.tracer,
    )


def build_alarm(ports: Ports, values: Values) -> InstallationAlarm:
    """Return what tells that a second database makes machines under our id."""
    stores = ports.stores
    return InstallationAlarm(
        flags=stores.flags,
        installation=stores.installation,
        begun_at=ports.clock.now(),
        history=stores.history,
        settling=values.settling,
    )
