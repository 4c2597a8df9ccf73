"""The account as a whole: what is sold, what runs, what nobody has, and how the server is."""

from __future__ import annotations

from datetime import datetime

from gpuherd.contract.catalogue import (
    Offer,
    Prewarm,
    PrewarmProduct,
    PrewarmQuota,
    PrewarmRemoved,
    Product,
    Region,
    RegistryAuth,
    RegistryAuthRemoved,
    Template,
    TemplatePort,
    TemplateRemoved,
    Volume,
    VolumeRemoved,
)
from gpuherd.contract.codec.model import Model
from gpuherd.contract.instance import Comprehensive, Instance, ListedInstance, ListedMachine
from gpuherd.contract.orphan import Orphan, Orphans, Released
from gpuherd.contract.service import CloudTrust, Creates, Health, Sync

__all__ = [
    "CloudTrust",
    "Comprehensive",
    "Creates",
    "Health",
    "Listed",
    "Offer",
    "Orphan",
    "Orphans",
    "Prewarm",
    "PrewarmProduct",
    "PrewarmQuota",
    "PrewarmRemoved",
    "Product",
    "Region",
    "RegistryAuth",
    "RegistryAuthRemoved",
    "Released",
    "Sync",
    "Template",
    "TemplatePort",
    "TemplateRemoved",
    "Volume",
    "VolumeRemoved",
    "WebhookEvent",
]

Listed = ListedInstance | ListedMachine


class WebhookEvent(Model, needs=("type", "timestamp")):
    """A webhook whose signature was good. `instance` is None where it is about the account."""

    type: str
    timestamp: datetime
    id: str = ""
    sequence: int | None = None
    instance: Instance | None = None
