"""Image prewarm: which tasks there are, one more, one less."""

from __future__ import annotations

from gpuherd.bootstrap.parts.shared import Shared
from gpuherd.bootstrap.ports import Ports, Values
from gpuherd.entrypoints.plane import PrewarmServices
from gpuherd.resilience.cache import Cache
from gpuherd.usecases.cloud.create_once import CreateOnce
from gpuherd.usecases.prewarms.create import WORDS, CreatePrewarm
from gpuherd.usecases.prewarms.delete import DeletePrewarm
from gpuherd.usecases.prewarms.list_all import TTL_S, ListPrewarms


def build_prewarms(ports: Ports, values: Values, shared: Shared) -> PrewarmServices:
    """Return what the outside may ask about prewarm tasks."""
    stores, clock, catalogue = ports.stores, ports.clock, shared.browsed_catalogue
    list_all = ListPrewarms(ports.prewarms, catalogue, Cache(clock, TTL_S, 1, "prewarms"))
    return PrewarmServices(
        list_all=list_all,
        create=CreatePrewarm(
            prewarms=ports.prewarms,
            list_prewarms=list_all,
            cloud=ports.browse_cloud or ports.cloud,
            catalogue=catalogue,
            flags=stores.flags,
            clock=clock,
            ids=ports.ids,
            create_once=CreateOnce(WORDS, stores.flags, clock, values.settling),
        ),
        delete=DeletePrewarm(ports.prewarms, list_all, stores.audit, clock),
    )
