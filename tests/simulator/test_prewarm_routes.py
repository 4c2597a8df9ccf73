"""Image prewarm on Novita's wire: numbers in strings, pages by `page`, and errors as everywhere."""

from __future__ import annotations

from typing import Any

from gpuherd.simulator.world import World
from tests.simulator.conftest import Client
from tests.support.fake_clock import FakeClock

PREWARM = "/image/prewarm"
BODY: dict[str, Any] = {
    "imageUrl": "registry.example.org/a/trainer:2",
    "clusterId": "us-ca-6",
    "productIds": ["4090.16c62g"],
    "note": "for the Night",
}


async def test_a_task_has_its_documented_types(novita: Client, clock: FakeClock) -> None:
    status, made = await novita.post(PREWARM, BODY)
    assert (status, set(made)) == (200, {"id"})
    await clock.advance(40)
    _, body = await novita.get(PREWARM)
    (task,) = body["data"]
    assert body["total"] == 1
    assert int(task.pop("completeTime")) == int(task.pop("createTime")) + 32
    assert int(task.pop("imageSize")) > 10**8
    assert task == {
        "id": made["id"],
        "imageName": "trainer",
        "imageUrl": "registry.example.org/a/trainer:2",
        "repositoryAuth": "",
        "clusterId": "us-ca-6",
        "clusterName": "US-CA-06 (California)",
        "products": [{"productId": "4090.16c62g", "productName": "RTX 4090 24GB"}],
        "state": "Succeeded",
        "note": "for the Night",
        "reason": ["image pulled successfully"],
    }
    assert await novita.get(f"{PREWARM}/quota") == (200, {"total": 1, "limit": 5, "perImageSize": 100})


async def test_a_list_is_filtered_and_paged(novita: Client, clock: FakeClock, world: World) -> None:
    for n in range(3):
        await novita.post(PREWARM, {**BODY, "imageUrl": f"image{n}:1", "note": "" if n else "first"})
    await clock.advance(40)
    await novita.post(PREWARM, {"imageUrl": "image3:1", "clusterId": "eu-gb-1"})

    async def names(**query: Any) -> list[str]:
        return [it["imageName"] for it in (await novita.get(PREWARM, **query))[1]["data"]]

    assert await names() == ["image3", "image2", "image1", "image0"]
    assert await names(page=2, pageSize=3) == ["image0"]
    assert await names(state="Pending") == await names(clusterId="eu-gb-1") == ["image3"]
    assert await names(name="FIRST") == await names(name="age0") == ["image0"]
    assert (await novita.get(PREWARM, state="Odd"))[1]["reason"] == "VALIDATOR_PARAM"


async def test_a_note_is_changed_and_tasks_are_removed_together(novita: Client) -> None:
    ids = [(await novita.post(PREWARM, {**BODY, "imageUrl": f"a:{n}"}))[1]["id"] for n in range(2)]
    assert await novita.post(f"{PREWARM}/edit", {"id": ids[0], "note": "other"}) == (200, {})
    assert (await novita.get(PREWARM))[1]["data"][1]["note"] == "other"
    refused = (await novita.post(f"{PREWARM}/delete", {"ids": [ids[0], "nothing"]}))[1]
    assert (refused["code"], refused["reason"]) == (400, "RESOURCE_NOT_FOUND")
    assert await novita.post(f"{PREWARM}/delete", {"ids": ids}) == (200, {})
    assert (await novita.get(PREWARM))[1] == {"data": [], "total": 0}


async def test_one_too_many_is_refused_as_novita_words_errors(novita: Client) -> None:
    for n in range(5):
        await novita.post(PREWARM, {**BODY, "imageUrl": f"a:{n}"})
    status, refused = await novita.post(PREWARM, BODY)
    message = "the limit of 5 image prewarm tasks is reached"
    assert status == 400
    assert refused == {"code": 400, "reason": "OPERATION_LIMIT", "message": message, "metadata": {}}
    assert (await novita.post(PREWARM, {"clusterId": "us-ca-6"}))[1]["reason"] == "VALIDATOR_PARAM"
