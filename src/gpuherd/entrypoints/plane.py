"""The plane: every use case that an entrypoint may call, put together once by bootstrap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuherd.clock import Clock, Ids
from gpuherd.domain.net.egress_policy import EgressPolicy
from gpuherd.ports.metrics import Meter, MetricsPage
from gpuherd.ports.replicas import Replica
from gpuherd.ports.tracing.tracer import Tracer
from gpuherd.usecases.access.answer_once import AnswerOnce
from gpuherd.usecases.access.audit_trail import AuditTrail
from gpuherd.usecases.access.claim_request import ClaimRequest
from gpuherd.usecases.access.key_cache import ApiKeyCache
from gpuherd.usecases.access.manage_keys import ManageKeys
from gpuherd.usecases.access.sessions import Sessions
from gpuherd.usecases.budgets.add import AddBudget
from gpuherd.usecases.budgets.change import ChangeBudget
from gpuherd.usecases.budgets.read import ReadBudgets
from gpuherd.usecases.budgets.remove import RemoveBudget
from gpuherd.usecases.cloud.account import AccountGuard
from gpuherd.usecases.cloud.catalogue import CatalogueCache
from gpuherd.usecases.cloud.creates import ManageCreates
from gpuherd.usecases.cloud.sync import SyncCloud
from gpuherd.usecases.cloud.vanishing import VanishingBrake
from gpuherd.usecases.costs.leftovers import ListLeftovers
from gpuherd.usecases.costs.list_label_keys import ListLabelKeys
from gpuherd.usecases.costs.read_balance import ReadBalance
from gpuherd.usecases.costs.read_hourly_now import ReadHourlyNow
from gpuherd.usecases.costs.reconcile import ReconcileDay
from gpuherd.usecases.costs.report import ReportCosts
from gpuherd.usecases.events.event_stream import EventFeed
from gpuherd.usecases.events.history import ReadEventHistory
from gpuherd.usecases.explain.why import ExplainInstance
from gpuherd.usecases.health import ReadServiceHealth
from gpuherd.usecases.housekeeping import ManageCaches
from gpuherd.usecases.images.registry import ManageRegistry
from gpuherd.usecases.images.templates import ManageTemplates
from gpuherd.usecases.instances.change_goal import ChangeGoal
from gpuherd.usecases.instances.change_lease import ChangeLease
from gpuherd.usecases.instances.comprehensive import ListComprehensive
from gpuherd.usecases.instances.find import AuthorizedLookup, FindInstance
from gpuherd.usecases.instances.history import ReadHistory
from gpuherd.usecases.instances.launch import LaunchInstance
from gpuherd.usecases.instances.list_page import ListInstances
from gpuherd.usecases.instances.note_use import NoteUse
from gpuherd.usecases.instances.plan import PlanLaunch
from gpuherd.usecases.instances.read import ReadInstance
from gpuherd.usecases.instances.read_log import ReadLog
from gpuherd.usecases.instances.replace import ReplaceInstance
from gpuherd.usecases.instances.validation.judge_values import JudgeValues
from gpuherd.usecases.jobs.read import ReadJobs
from gpuherd.usecases.jobs.retry import RetryJob
from gpuherd.usecases.orphans.adopt import AdoptOrphan
from gpuherd.usecases.orphans.collect import CollectOrphans
from gpuherd.usecases.orphans.find import FindOrphan
from gpuherd.usecases.orphans.list_open import ListOrphans
from gpuherd.usecases.orphans.order import OrderOrphan
from gpuherd.usecases.overview import ReadOverview
from gpuherd.usecases.plans.find import FindHeldPlan
from gpuherd.usecases.plans.hold import HoldPlan
from gpuherd.usecases.prewarms.create import CreatePrewarm
from gpuherd.usecases.prewarms.delete import DeletePrewarm
from gpuherd.usecases.prewarms.list_all import ListPrewarms
from gpuherd.usecases.secrets.manage import ManageSecrets
from gpuherd.usecases.secrets.rotate import RotateSecrets
from gpuherd.usecases.volumes.create import CreateVolume
from gpuherd.usecases.volumes.delete import DeleteVolume
from gpuherd.usecases.volumes.list_all import ListVolumes
from gpuherd.usecases.webhooks.endpoints import ManageEndpoints
from gpuherd.usecases.webhooks.key_secrets import KeyWebhookSecrets
from gpuherd.usecases.webhooks.list_deliveries import ListDeliveries
from gpuherd.usecases.webhooks.replay import ReplayWebhooks
from gpuherd.usecases.webhooks.send_test import SendTestWebhook


@dataclass(frozen=True)
class WebhookServices:
    """What the outside may ask about webhooks."""

    endpoints: ManageEndpoints
    deliveries: ListDeliveries
    replay: ReplayWebhooks
    test: SendTestWebhook
    key_secrets: KeyWebhookSecrets


@dataclass(frozen=True)
class OrphanServices:
    """What the outside may ask about machines that no instance has."""

    list_open: ListOrphans
    collect: CollectOrphans
    find: FindOrphan
    order: OrderOrphan
    adopt: AdoptOrphan


@dataclass(frozen=True)
class KeyServices:
    """What the outside may ask about keys, about what was done with them, and about requests made twice."""

    key_cache: ApiKeyCache
    manage: ManageKeys
    audit: AuditTrail
    claim_request: ClaimRequest
    answer_once: AnswerOnce
    sessions: Sessions


@dataclass(frozen=True)
class EventServices:
    """What the outside may ask about what happened, and what happens."""

    history: ReadEventHistory
    feed: EventFeed


@dataclass(frozen=True)
class CostServices:
    """What the outside may ask about money."""

    report: ReportCosts
    label_keys: ListLabelKeys
    hourly_now: ReadHourlyNow
    leftovers: ListLeftovers
    balance: ReadBalance
    reconcile: ReconcileDay


@dataclass(frozen=True)
class PlanServices:
    """What the outside may ask about plans that are held."""

    hold: HoldPlan
    find: FindHeldPlan


@dataclass(frozen=True)
class BudgetServices:
    """What the outside may ask about budgets."""

    read: ReadBudgets
    add: AddBudget
    change: ChangeBudget
    remove: RemoveBudget


@dataclass(frozen=True)
class VolumeServices:
    """What the outside may ask about network volumes."""

    list_all: ListVolumes
    create: CreateVolume
    delete: DeleteVolume


@dataclass(frozen=True)
class PrewarmServices:
    """What the outside may ask about image prewarm."""

    list_all: ListPrewarms
    create: CreatePrewarm
    delete: DeletePrewarm


@dataclass(frozen=True)
class ImageServices:
    """What the outside may ask about what the account keeps for images."""

    registry: ManageRegistry
    templates: ManageTemplates


@dataclass(frozen=True)
class ShownSetting:
    """A setting, fit for everybody's eyes."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class Plane:
    """What the outside may use of the inside."""

    judge_values: JudgeValues
    launch_instance: LaunchInstance
    plan_launch: PlanLaunch
    plans: PlanServices
    explain_instance: ExplainInstance
    find_instance: FindInstance
    read_instance: ReadInstance
    list_instances: ListInstances
    list_comprehensive: ListComprehensive
    sync_cloud: SyncCloud
    manage_caches: ManageCaches
    change_goal: ChangeGoal
    replace_instance: ReplaceInstance
    change_lease: ChangeLease
    note_use: NoteUse
    read_history: ReadHistory
    read_log: ReadLog
    read_jobs: ReadJobs
    retry_job: RetryJob
    creates: ManageCreates
    account: AccountGuard
    vanishing: VanishingBrake
    health: ReadServiceHealth
    overview: ReadOverview
    webhooks: WebhookServices
    orphans: OrphanServices
    events: EventServices
    costs: CostServices
    budgets: BudgetServices
    volumes: VolumeServices
    images: ImageServices
    prewarms: PrewarmServices
    catalogue: CatalogueCache
    targets: EgressPolicy
    lookup: AuthorizedLookup
    keys: KeyServices
    secrets: ManageSecrets
    rotate_secrets: RotateSecrets
    clock: Clock
    ids: Ids
    meter: Meter
    tracer: Tracer
    metrics: MetricsPage
    # False before everything runs and as soon as a shutdown begins.
    is_ready: Callable[[], bool]
    # Everyone on the same database; empty for one who has a file of his own.
    replicas: Callable[[], Sequence[Replica]] = tuple
    # The settings in force, without anything secret.
    settings_shown: Callable[[], Sequence[ShownSetting]] = tuple
