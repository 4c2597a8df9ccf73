"""What was seen of the ends: every version of every instance, and every call, by the schedule's own time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from gpuherd.domain.instance.idleness import Utilization
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.lease import LeaseTerm
from gpuherd.domain.money.budget import Budget
from proof.chaos.ends.plan import NO_ENDS, EndsPlan
from tests.support.memory.tables import Tables


@dataclass(frozen=True)
class Version:
    """An instance as it was committed then."""

    at_s: float
    instance: Instance


@dataclass(frozen=True)
class CloudCall:
    """A call that the service wanted to make, whether or not it went out; an empty error: it was obeyed."""

    begin_s: float
    end_s: float
    method: str
    cloud_id: str
    error: str = ""


@dataclass(frozen=True)
class Promise:
    """A lease as it was agreed: when it was, and when it ends if no clock is ever set."""

    made_s: float
    ends_s: float
    term: LeaseTerm


@dataclass(frozen=True)
class LeaseAnswer:
    """What a user heard who wanted another lease; `refused` is the code, if it was."""

    at_s: float
    instance_id: str
    refused: str = ""


@dataclass
class EndsEvidence:
    """All of it, for one schedule; empty where nothing is watched."""

    plan: EndsPlan = NO_ENDS
    versions: dict[str, list[Version]] = field(default_factory=lambda: defaultdict(list))
    budgets: dict[str, list[tuple[float, Budget]]] = field(default_factory=lambda: defaultdict(list))
    # When each event was committed.
    event_s: dict[tuple[str, int], float] = field(default_factory=dict)
    promises: dict[str, list[Promise]] = field(default_factory=lambda: defaultdict(list))
    # When nothing was let end by idleness any more, if that was ever so.
    braked_s: float | None = None
    calls: list[CloudCall] = field(default_factory=list)
    # When each life of the process began.
    lives_s: list[float] = field(default_factory=list)
    answers: list[LeaseAnswer] = field(default_factory=list)
    # When a user's word that an instance is in use was taken.
    beats_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    # What the metrics said of a machine, and when.
    samples: dict[str, list[tuple[float, tuple[Utilization, ...]]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def version_at(self, instance_id: str, at_s: float) -> Instance | None:
        """Return an instance as it was before anything of this moment was written."""
        earlier = [it.instance for it in self.versions[instance_id] if it.at_s < at_s]
        return earlier[-1] if earlier else None


class WatchedTables(Tables):
    """Tables that tell of each commit, with what was put where."""

    def __init__(self) -> None:
        super().__init__()
        self.on_commit: Callable[[str, object], None] | None = None
        # How often something that is watched was written.
        self.changes = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        done = self._undo
        super().__exit__(kind, error, trace)
        if error is not None or self.on_commit is None:
            return
        watched = {id(self.instances): "instance", id(self.budgets): "budget", id(self.events): "event"}
        for table, key, _ in done:
            if (name := watched.get(id(table))) is not None and key in table:
                self.changes += 1
                self.on_commit(name, table[key])


def is_new_promise(before: LeaseTerm | None, after: LeaseTerm | None) -> bool:
    """Tell whether an end was agreed anew: one that only follows a clock that was set is the same one."""
    if after is None or after.ended or after == before:
        return False
    whole = (after.ends_at - after.set_at).total_seconds()
    is_whole = abs(whole - after.length_s) < 1e-3
    was_same = before is not None and (before.ends_at, before.set_at) == (after.ends_at, after.set_at)
    return is_whole and not (was_same and not (before is not None and before.ended))
