"""The passes: what a job does for one instance, and the health rounds beside it."""

from __future__ import annotations

from functools import partial

from gpuherd import __version__
from gpuherd.bootstrap.parts.shared import Shared
from gpuherd.bootstrap.ports import Ports, Values
from gpuherd.usecases.clock_steps import ClockStepDetector
from gpuherd.usecases.cloud.lost_creates import LostCreates
from gpuherd.usecases.reconcile.advance import AdvanceInstance
from gpuherd.usecases.reconcile.apply_step import ApplyStep
from gpuherd.usecases.reconcile.bind_found import BindFoundMachine
from gpuherd.usecases.reconcile.bind_machine import BindMachine
from gpuherd.usecases.reconcile.end_instance import EndInstance
from gpuherd.usecases.reconcile.health.check_health import CheckHealth
from gpuherd.usecases.reconcile.health.run_health_round import RunHealthRound
from gpuherd.usecases.reconcile.own_machine import VerifyOwnMachine
from gpuherd.usecases.reconcile.record_reclaim import RecordReclaim
from gpuherd.usecases.reconcile.rent import RentMachine
from gpuherd.usecases.reconcile.request_machine import RequestMachine
from gpuherd.usecases.reconcile.resolve_attempt import ResolveAttempt
from gpuherd.usecases.reconcile.start.restart_machine import RestartMachine
from gpuherd.usecases.reconcile.start.start_machine import StartMachine
from gpuherd.usecases.reconcile.verify_tag import VerifyTag
from gpuherd.usecases.succession.follow import FollowSuccession
from gpuherd.usecases.succession.notice_lengths import NoticeLengths


def build_advance(ports: Ports, values: Values, shared: Shared) -> AdvanceInstance:
    """Return what brings an instance nearer to its goal."""
    instance_leases, cloud, clock, event_recorder = (
        ports.stores.instance_leases,
        ports.cloud,
        ports.clock,
        shared.event_recorder,
    )
    bind = BindMachine(
        instance_leases=instance_leases,
        event_recorder=event_recorder,
        clock=clock,
        lease_warning=values.lease_warning,
        line=shared.capacity_line,
        wake_heads=shared.watch_capacity.wake_heads,
        max_wait=values.instance_max_wait,
    )
    clock_steps, read_clocks = ClockStepDetector(clock), shared.observer.metering.read_clocks
    rent = RentMachine(
        instance_leases=instance_leases,
        cloud=cloud,
        catalogue=shared.catalogue,
        environments=shared.environments,
        event_recorder=event_recorder,
        flags=ports.stores.flags,
        clock=clock,
        clock_steps=clock_steps,
        installation=ports.stores.installation,
        boot_id=values.boot_id,
        line=shared.capacity_line,
        bind=bind,
        bind_found=BindFoundMachine(
            bind=bind,
            catalogue=shared.catalogue,
            alarm=shared.alarm,
            clock=clock,
            settling=values.settling,
            installation=ports.stores.installation,
            boot_id=values.boot_id,
        ),
        nonce=partial(_nonce, ports),
        read_clocks=read_clocks,
        has_listed=shared.observer.has_listed,
        may_have_lost_create=LostCreates(
            ports.stores.history, ports.stores.observations, clock, values.settling
        ).may_exist,
        unknown_outcomes_max=values.unknown_outcomes_max,
    )
    verify_tag = VerifyTag(instance_leases, event_recorder, ports.stores.flags)
    request = RequestMachine(instance_leases, event_recorder, clock)
    notices = NoticeLengths(ports.stores.flags, values.reclaim_notice)
    apply_step = ApplyStep(
        instance_leases=instance_leases,
        cloud=cloud,
        event_recorder=event_recorder,
        rent=rent,
        alarm=shared.alarm,
        resolve=ResolveAttempt(instance_leases, event_recorder, bind, clock, values.settling),
        job_factory=shared.job_factory,
        verify_tag=verify_tag,
        own_machine=VerifyOwnMachine(cloud, instance_leases, ports.stores.observations, read_clocks),
        request=request,
        start=StartMachine(instance_leases, cloud, event_recorder, request, clock, clock_steps),
        restart=RestartMachine(instance_leases, cloud, event_recorder, request, clock),
        reclaim=RecordReclaim(instance_leases, event_recorder, notices, shared.capacity_line),
        end=EndInstance(instance_leases, event_recorder, clock, ports.ids, shared.end_lineage),
        clock=clock,
        read_clocks=read_clocks,
    )
    return AdvanceInstance(
        instance_leases=instance_leases,
        cloud=cloud,
        job_factory=shared.job_factory,
        apply_step=apply_step,
        verify_tag=verify_tag,
        clock=clock,
        settling=values.settling,
        account=shared.account,
        clock_steps=clock_steps,
        lease_clock_steps=ClockStepDetector(clock, counts_sleep=True),
        up_since=clock.now(),
        budgets=shared.budget_cache,
        line=shared.capacity_line,
        succession=FollowSuccession(
            instances=ports.stores.instances,
            instance_leases=instance_leases,
            observations=ports.stores.observations,
            jobs=ports.stores.book,
            job_factory=shared.job_factory,
            event_recorder=event_recorder,
            catalogue=shared.catalogue,
            make_heir=shared.make_heir,
            end_lineage=shared.end_lineage,
            clock=clock,
            ids=ports.ids,
            notices=notices,
            meter=ports.meter,
            limits_of=shared.keys.key_cache.limits_of,
        ),
        tracer=ports.tracer,
    )


def build_health_round(ports: Ports, shared: Shared, apply_step: ApplyStep) -> RunHealthRound:
    """Return what probes the application of an instance."""
    stores = ports.stores
    return RunHealthRound(
        instances=stores.instances,
        instance_leases=stores.instance_leases,
        jobs=stores.book,
        job_factory=shared.job_factory,
        check_health=CheckHealth(ports.prober, ports.clock, ports.rng),
        apply_step=apply_step,
    )


def _nonce(ports: Ports) -> str:
    """Return the random part of a tag; none while a replica of another version may not be able to read it."""
    known = all(it.version == __version__ for it in ports.live_replicas())
    return ports.ids.nonce() if known else ""
