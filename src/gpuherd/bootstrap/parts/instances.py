"""What people ask of instances: launch, read, list, explain, change."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.bootstrap.parts.shared import Shared
from gpuherd.bootstrap.ports import Ports, Values
from gpuherd.entrypoints.plane import PlanServices
from gpuherd.usecases.instances.change_goal import ChangeGoal
from gpuherd.usecases.instances.change_lease import ChangeLease
from gpuherd.usecases.instances.comprehensive import ListComprehensive
from gpuherd.usecases.instances.end_rules import EndRules
from gpuherd.usecases.instances.find import FindInstance
from gpuherd.usecases.instances.launch import LaunchInstance
from gpuherd.usecases.instances.list_page import ListInstances
from gpuherd.usecases.instances.note_use import NoteUse
from gpuherd.usecases.instances.plan import PlanLaunch
from gpuherd.usecases.instances.read import ReadInstance
from gpuherd.usecases.instances.replace import ReplaceInstance
from gpuherd.usecases.instances.validation.judge_values import JudgeValues
from gpuherd.usecases.plans.find import FindHeldPlan
from gpuherd.usecases.plans.hold import HoldPlan
from gpuherd.usecases.volumes.list_all import ListVolumes
from gpuherd.usecases.volumes.pin_region import PinRegion


@dataclass(frozen=True, kw_only=True)
class InstanceParts:
    """The use cases of instances that are built from more than a store."""

    judge: JudgeValues
    launch: LaunchInstance
    plan: PlanLaunch
    plans: PlanServices
    find: FindInstance
    read: ReadInstance
    list_page: ListInstances
    comprehensive: ListComprehensive
    change_goal: ChangeGoal
    replace: ReplaceInstance
    change_lease: ChangeLease
    note_use: NoteUse


def build_instances(ports: Ports, values: Values, shared: Shared, list_volumes: ListVolumes) -> InstanceParts:
    """Return what people ask of instances."""
    stores, clock = ports.stores, ports.clock
    instances, catalogue, observer = stores.instances, shared.browsed_catalogue, shared.observer
    find, pin_region = FindInstance(instances), PinRegion(list_volumes)
    ends = EndRules(values.default_lease, values.delete_stopped_after, values.lease_warning)
    judge = JudgeValues(catalogue, ends, clock, values.lookup_budget_s)
    parts = InstanceParts(
        judge=judge,
        launch=LaunchInstance(
            instances=instances,
            catalogue=catalogue,
            environments=shared.environments,
            pin_region=pin_region,
            event_recorder=shared.event_recorder,
            job_factory=shared.job_factory,
            rules=values.regions,
            clock=clock,
            ids=ports.ids,
            max_wait=values.instance_max_wait,
            judge=judge,
            budgets=shared.budget_cache,
            budget_rules=values.budget_rules,
            line=shared.capacity_line,
            max_replacements=values.max_replacements,
            lookup_budget_s=values.lookup_budget_s,
            tracer=ports.tracer,
        ),
        plan=PlanLaunch(
            instances=instances,
            catalogue=catalogue,
            environments=shared.environments,
            pin_region=pin_region,
            flags=stores.flags,
            rules=values.regions,
            timeout_s=values.request_timeout_s,
            judge=judge,
            budgets=stores.budgets,
            budget_cache=shared.budget_cache,
            budget_rules=values.budget_rules,
            clock=clock,
            line=shared.capacity_line,
        ),
        plans=PlanServices(
            HoldPlan(stores.held_plans, ports.sealer, clock, ports.ids),
            FindHeldPlan(stores.held_plans, ports.sealer),
        ),
        find=find,
        read=ReadInstance(
            find, instances, stores.hub, clock, observer.is_stale, shared.capacity_line.place_of
        ),
        list_page=ListInstances(instances, clock),
        comprehensive=ListComprehensive(
            instances, ports.browse_cloud or ports.cloud, observer, stores.installation, clock
        ),
        change_goal=ChangeGoal(
            instances=instances,
            jobs=stores.book,
            find=find,
            event_recorder=shared.event_recorder,
            job_factory=shared.job_factory,
            clock=clock,
            ids=ports.ids,
            max_wait=values.instance_max_wait,
            lease_warning=ends.lease_warning,
            breaker_state=ports.breaker_state,
            budgets=shared.budget_cache,
            budget_rules=values.budget_rules,
            end_lineage=shared.end_lineage,
        ),
        replace=ReplaceInstance(
            instances=instances,
            jobs=stores.book,
            find=find,
            make_heir=shared.make_heir,
            job_factory=shared.job_factory,
        ),
        change_lease=ChangeLease(
            instances=instances,
            jobs=stores.book,
            find=find,
            job_factory=shared.job_factory,
            rules=ends,
            clock=clock,
            budgets=shared.budget_cache,
            budget_rules=values.budget_rules,
        ),
        note_use=NoteUse(instances, find, clock),
    )
    for forget in (parts.list_page.forget, parts.comprehensive.forget):
        stores.history.subscribe(forget)
    return parts
