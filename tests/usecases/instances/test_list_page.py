"""A page shows every change at once, and encodes nothing twice."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from gpuherd.contract.instance_models import InstanceRecord
from gpuherd.domain.instance.instance import Instance, SettledCost, Status
from gpuherd.ports.instance_port import InstancePage, InstanceQuery
from gpuherd.usecases.instances import read_instance
from gpuherd.usecases.instances.read_instance import ListInstances
from gpuherd.usecases.views.instance_view import describe, describe_cost
from tests.support.builders import a_running_instance
from tests.support.fake_clock import START, FakeClock


@dataclass
class Shelf:
    """Stands for the store."""

    instances: tuple[Instance, ...]

    async def page(self, query: InstanceQuery) -> InstancePage:
        return InstancePage(self.instances, 7, "cursor")


async def test_a_page_holds_what_describe_says() -> None:
    shelf = Shelf((a_running_instance(1), a_running_instance(2, name='ü\n"')))
    listed = json.loads(await ListInstances(shelf, FakeClock())(InstanceQuery()))  # type: ignore[arg-type]
    assert listed == {
        "instances": [
            {**describe(it).model_dump(mode="json"), "cost": describe_cost(it.cost).model_dump(mode="json")}
            for it in shelf.instances
        ],
        "total": 7,
        "nextCursor": "cursor",
    }


async def test_an_empty_page_is_valid_too() -> None:
    assert json.loads(await ListInstances(Shelf(()), FakeClock())(InstanceQuery()))["instances"] == []  # type: ignore[arg-type]


async def test_a_new_version_is_shown_and_an_old_one_is_not_encoded_again(monkeypatch) -> None:
    described: list[str] = []

    def counting(it: Instance) -> InstanceRecord:
        described.append(it.status.value)
        return describe(it)

    monkeypatch.setattr(read_instance, "describe", counting)
    it = a_running_instance(1)
    shelf = Shelf((it,))
    listing = ListInstances(shelf, FakeClock())  # type: ignore[arg-type]
    for _ in range(3):
        await listing(InstanceQuery())
    shelf.instances = (replace(it, version=it.version + 1, status=Status.EXITED),)
    shown = json.loads(await listing(InstanceQuery()))
    assert shown["instances"][0]["status"] == "exited"
    assert described == ["running", "exited"]


async def test_what_is_kept_stays_bounded(monkeypatch) -> None:
    monkeypatch.setattr(read_instance, "CACHED_ENTRIES_MAX", 3)
    listing = ListInstances(Shelf(tuple(a_running_instance(n) for n in range(9))), FakeClock())  # type: ignore[arg-type]
    assert len(json.loads(await listing(InstanceQuery()))["instances"]) == 9
    assert listing._encoded.stats.size == 3


async def test_what_it_costs_is_shown_as_soon_as_it_is_settled_without_a_new_version() -> None:
    it = a_running_instance(1)
    shelf = Shelf((it,))
    listing = ListInstances(shelf, FakeClock())  # type: ignore[arg-type]
    await listing(InstanceQuery())
    shelf.instances = (replace(it, cost=SettledCost(1_500_000_000, 0, 200_000_000, START)),)
    (shown,) = json.loads(await listing(InstanceQuery()))["instances"]
    assert (shown["cost"]["settled"], shown["cost"]["hourlyNow"]) == ("1.5", "0.2")
