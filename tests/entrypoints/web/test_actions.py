"""What people do with the pages: rent, start, stop, delete, replay, and look after keys and endpoints."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from gpuherd.domain.api_key import Caller, Scope
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.launch_spec import VolumeMount
from gpuherd.domain.instance.lineage import OnReclaim
from gpuherd.domain.job import JobStatus
from gpuherd.domain.secret import Secret
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.ports.instance_port import InstanceQuery
from gpuherd.ports.job_port import JobQuery
from gpuherd.ports.webhook_port import DeliveryQuery, DeliveryResult
from gpuherd.simulator.simulated_catalogue import TEAM_REGISTRY
from gpuherd.usecases.access.manage_secrets import put_secret
from gpuherd.usecases.cloud.guard_creates import CREATES_BLOCKED
from tests.entrypoints.web.conftest import HOSTILE, Browser, hostile_parts, once_of
from tests.support.herd import Herd
from tests.support.unmanaged_machines import rent_outside_gpuherd

SignedIn = Callable[[str], Awaitable[Browser]]
WISH = {"name": "train-7", "productName": "RTX 4090 24GB", "templateId": "101"}
CANARY = "canary-of-a-variable"
IMAGE = {
    "imageUrl": "docker.io/library/ubuntu:22.04",
    "command": "sleep 9",
    "ports": "8000/http",
    "envs": f"HF_TOKEN={CANARY}",
    "minCudaVersion": "12.4",
    "registryAuthId": TEAM_REGISTRY.id,
}


async def once(browser: Browser) -> str:
    return await once_of(browser, "/instances/new")


async def names(plane: Plane) -> list[str]:
    return [it.name for it in (await plane.services.stores.instances.page(InstanceQuery())).instances]


class TestRenting:
    async def test_a_form_rents_and_leads_to_the_instance(self, admin: Browser, plane: Plane) -> None:
        reply = await admin.send("/instances/new", once=await once(admin), **WISH, gpuNum="2", labels="a=b")
        assert reply.status_code == 303
        (it,) = (await plane.services.stores.instances.page(InstanceQuery())).instances
        assert reply.headers["location"] == f"/instances/{it.id}?done=rent"
        assert (it.name, it.wish.gpu_num, it.labels) == ("train-7", 2, {"a": "b"})
        assert "Accepted." in await admin.text(reply.headers["location"])

    async def test_a_form_may_ask_for_replacement(self, admin: Browser, plane: Plane) -> None:
        await admin.send("/instances/new", once=await once(admin), **WISH, onReclaim="replace")
        (it,) = (await plane.services.stores.instances.page(InstanceQuery())).instances
        assert it.replacement.on_reclaim is OnReclaim.REPLACE

    async def test_a_form_mounts_volumes_where_they_are(
        self, admin: Browser, plane: Plane, herd: Herd
    ) -> None:
        volume = herd.world.volumes.create("data", "us-ca-6", 50, herd.world.now())
        said = {**WISH, "volumes": f"{volume.id}:/data"}
        plan = await admin.send("/instances/plan", **said)
        assert "volumes at /data" in plan.text and "pin it to US-CA-06" in plan.text
        reply = await admin.send("/instances/new", once=await once(admin), **said)
        assert f'<code>/data</code> <span class="hint">{volume.id}' in await admin.text(
            reply.headers["location"]
        )
        wrong = await admin.send("/instances/new", once=await once(admin), **WISH, volumes="data")
        assert 'id="volumes-problem"' in wrong.text and 'value="data"' in wrong.text

    async def test_volumes_secrets_and_credentials_are_chosen_from_what_there_is(
        self, admin: Browser, plane: Plane, herd: Herd
    ) -> None:
        volume = herd.world.volumes.create("data", "us-ca-6", 50, herd.world.now())
        caller = Caller("admin", Scope.ADMIN)
        for shared in (True, False):
            await put_secret(plane.services, "hf", Secret(CANARY), caller, shared=shared)
        form = await admin.text(f"/instances/new?mount.{volume.id}=/data")
        assert "50 GB in US-CA-06" in form and f'name="mount.{volume.id}"' in form
        assert 'value="/data"' in form and form.count('name="secret.hf"') == 1
        assert f'<option value="{TEAM_REGISTRY.id}">' in form
        said = {**WISH, f"mount.{volume.id}": "/data", "secret.hf": "HF_TOKEN"}
        reply = await admin.send("/instances/new", once=await once(admin), **said)
        assert reply.status_code == 303, reply.text
        (it,) = (await plane.services.stores.instances.page(InstanceQuery())).instances
        assert it.wish.volumes == (VolumeMount(volume.id, "/data"),)
        assert [(env.name, env.secret) for env in it.wish.envs] == [("HF_TOKEN", "hf")]
        refused = await admin.send("/instances/new", once=await once(admin), **said, gpuNum="99")
        assert 'value="/data"' in refused.text and 'value="HF_TOKEN"' in refused.text
        assert CANARY not in form + refused.text

    async def test_what_cannot_be_chosen_any_more_is_not_lost(self, admin: Browser, herd: Herd) -> None:
        said = {**WISH, "mount.gone": "/data", "secret.gone": "HF_TOKEN"}
        reply = await admin.send("/instances/new", once=await once(admin), **said)
        assert (reply.status_code, "has no secret" in reply.text) == (404, True)
        assert 'value="gone:/data"' in reply.text and 'value="HF_TOKEN=gone"' in reply.text

    async def test_two_secrets_are_not_one_variable(self, admin: Browser, plane: Plane) -> None:
        said = {**WISH, "secret.hf": "TOKEN", "secrets": "TOKEN=other"}
        for path in ("/instances/new", "/instances/plan"):
            reply = await admin.send(path, once=await once(admin), **said)
            assert "more than one secret is to be the value of TOKEN" in reply.text
        assert await names(plane) == []

    async def test_a_double_click_rents_once(self, admin: Browser, plane: Plane) -> None:
        word = await once(admin)
        first = await admin.send("/instances/new", once=word, **WISH)
        second = await admin.send("/instances/new", once=word, **WISH)
        assert first.headers["location"] == second.headers["location"]
        assert await names(plane) == ["train-7"]

    async def test_two_forms_rent_twice(self, admin: Browser, plane: Plane) -> None:
        for _ in range(2):
            await admin.send("/instances/new", once=await once(admin), **WISH)
        assert await names(plane) == ["train-7", "train-7"]

    @pytest.mark.parametrize("word", ["", "a b", "x" * 101, "ä"])
    async def test_without_its_word_a_form_rents_nothing(
        self, admin: Browser, plane: Plane, word: str
    ) -> None:
        assert (await admin.send("/instances/new", once=word, **WISH)).status_code == 400
        assert await names(plane) == []

    async def test_a_name_with_a_slash_is_shown_as_a_mistake(self, admin: Browser, plane: Plane) -> None:
        reply = await admin.send("/instances/new", once=await once(admin), **{**WISH, "name": "a/b"})
        assert (reply.status_code, 'id="name-problem"' in reply.text) == (400, True)
        assert await names(plane) == []

    async def test_mistakes_are_shown_beside_their_fields_and_nothing_is_lost(
        self, admin: Browser, plane: Plane
    ) -> None:
        said = {**WISH, "gpuNum": "99", "maxHourlyPrice": "cheap", "webhookUrl": "http://10.0.0.1/x"}
        reply = await admin.send("/instances/new", once=await once(admin), **said)
        assert reply.status_code == 400
        for field in ("gpuNum", "maxHourlyPrice", "webhookUrl"):
            assert f'id="{field}-problem"' in reply.text
        assert 'value="http://10.0.0.1/x"' in reply.text
        assert 'value="train-7"' in reply.text
        assert await names(plane) == []

    async def test_what_cannot_be_had_is_said_on_the_form(self, admin: Browser, plane: Plane) -> None:
        reply = await admin.send("/instances/new", once=await once(admin), **WISH, maxHourlyPrice="0.01")
        assert reply.status_code == 409
        assert 'value="0.01"' in reply.text
        assert 'role="alert"' in reply.text
        assert await names(plane) == []

    async def test_the_plan_shows_the_price_and_rents_nothing(self, admin: Browser, plane: Plane) -> None:
        reply = await admin.send("/instances/plan", productName="RTX 4090 24GB", templateId="101", gpuNum="2")
        assert "$0.40/h" in reply.text
        assert "CN-HK-01" in reply.text
        assert "<html" not in reply.text
        assert await names(plane) == []

    async def test_an_image_with_its_environment_is_planned_rented_and_shown_without_values(
        self, admin: Browser, plane: Plane
    ) -> None:
        said = {**IMAGE, "name": "mine", "productName": "RTX 4090 24GB"}
        plan = await admin.send("/instances/plan", **said)
        for words in (
            "runs docker.io/library/ubuntu:22.04: sleep 9",
            "8000/http",
            "CUDA 12.4",
            "HF_TOKEN=***",
        ):
            assert words in plan.text
        reply = await admin.send("/instances/new", once=await once(admin), **said)
        assert reply.status_code == 303, reply.text
        shown = await admin.text(reply.headers["location"])
        for words in (
            "docker.io/library/ubuntu:22.04",
            "sleep 9",
            "8000/http",
            "12.4 or newer",
            "HF_TOKEN=***",
        ):
            assert words in shown
        (it,) = (await plane.services.stores.instances.page(InstanceQuery())).instances
        assert (it.wish.template_id, it.wish.registry_auth_id) == ("", TEAM_REGISTRY.id)
        refused = await admin.send("/instances/new", once=await once(admin), **said, gpuNum="99")
        assert "Type them again" in refused.text
        assert not [page for page in (plan.text, shown, refused.text) if CANARY in page]

    async def test_a_plan_says_what_of_the_template_the_wish_replaces(self, admin: Browser) -> None:
        plan = await admin.send("/instances/plan", **WISH, command="sleep 9", ports="8000/http")
        assert "runs docker.io/pytorch/" in plan.text
        assert "instead of the template's command: jupyter lab" in plan.text
        assert "instead of the template's ports: 8888/http, 22/tcp" in plan.text

    async def test_a_plan_of_nothing_yet_asks_for_something(self, admin: Browser) -> None:
        assert "Choose a GPU" in (await admin.send("/instances/plan")).text
        assert "problem" in (await admin.send("/instances/plan", productName="x", templateId="9")).text

    async def test_what_a_key_rents_is_its_own(self, signed_in: SignedIn, plane: Plane) -> None:
        browser = await signed_in("write")
        await browser.send("/instances/new", once=await once(browser), **WISH)
        (it,) = (await plane.services.stores.instances.page(InstanceQuery())).instances
        assert it.owner != "admin"
        assert "train-7" in await browser.text("/instances")


class TestOneInstance:
    async def test_it_is_stopped_started_and_deleted(self, admin: Browser, herd: Herd) -> None:
        it = await herd.settle(await herd.launch("alpha"))
        for verb, status in (("stop", Status.EXITED), ("start", Status.RUNNING), ("delete", Status.DELETED)):
            page = await admin.text(f"/instances/{it.id}")
            assert f'action="/instances/{it.id}/{verb}"' in page
            reply = await admin.send(f"/instances/{it.id}/{verb}")
            assert reply.headers["location"] == f"/instances/{it.id}?done={verb}"
            assert (await herd.settle(await herd.get(it.id))).status is status
        assert 'method="post" action="/instances' not in await admin.text(f"/instances/{it.id}")

    async def test_what_cannot_be_done_is_a_page_that_says_why(self, admin: Browser, herd: Herd) -> None:
        it = await herd.settle(await herd.launch("alpha"))
        reply = await admin.send(f"/instances/{it.id}/start")
        assert reply.status_code == 409
        assert "only an exited instance can be started" in reply.text

    async def test_filters_and_pages(self, admin: Browser, herd: Herd) -> None:
        for n in range(52):
            await herd.launch(f"job-{n}")
        page = await admin.text("/instances?status=&name=&label=")
        assert "50 of 52" in page
        following = re.search(r'rel="next" href="([^"]+)"', page)
        assert following is not None
        assert "2 of 52" in await admin.text(following[1].replace("&amp;", "&"))
        assert "job-7</a>" in await admin.text("/instances?name=job-7")
        assert "No instance fits" in await admin.text("/instances?status=failed")
        assert (await admin.open("/instances?status=nonsense")).status_code == 400

    @pytest.mark.parametrize("name", HOSTILE)
    async def test_a_hostile_name_is_text_on_every_page(self, admin: Browser, herd: Herd, name: str) -> None:
        it = await herd.settle(await herd.launch(name))
        for path in ("/", "/instances", f"/instances/{it.id}", "/jobs", "/audit"):
            assert hostile_parts(await admin.text(path)) == []


class TestTheRest:
    async def test_a_failed_job_is_retried(self, admin: Browser, herd: Herd) -> None:
        await herd.launch("alpha")
        (job,) = (await herd.book.page(JobQuery())).jobs
        await herd.book.mark_started(job.id)
        await herd.book.mark_failed(job.id, "the <b>reason</b>")
        page = await admin.text("/jobs?status=FAILED")
        assert "the &lt;b&gt;reason&lt;/b&gt;" in page
        assert (await admin.send(f"/jobs/{job.id}/retry")).status_code == 303
        assert (await herd.book.get(job.id)).status is JobStatus.PENDING

    async def test_a_delivery_is_replayed(self, admin: Browser, herd: Herd, plane: Plane) -> None:
        await herd.settle(await herd.launch("alpha", webhook_url="https://example.com/hook?token=secret"))
        (first, *_) = (await plane.services.stores.deliveries.page(DeliveryQuery())).deliveries
        page = await admin.text(f"/webhooks/{first.id}")
        assert "token=secret" not in page + await admin.text("/webhooks")
        reply = await admin.send(f"/webhooks/{first.id}/replay")
        assert reply.headers["location"] == f"/webhooks/{first.id}?done=replay"
        assert (await herd.outbox.get(first.id)).replays == 1
        assert (await admin.send("/webhooks/replay")).status_code == 303

    async def test_an_endpoint_is_made_rotated_and_removed(self, admin: Browser, plane: Plane) -> None:
        refused = await admin.send("/endpoints", url="http://10.0.0.1/", label="x")
        assert (refused.status_code, 'id="url-problem"' in refused.text) == (400, True)
        made = await admin.send("/endpoints", url="https://example.com/h", events="instance.ready")
        assert "whsec_" in made.text
        assert "whsec_" not in await admin.text("/endpoints")
        (endpoint,) = await plane.services.stores.endpoints.list_all()
        assert endpoint.events == ("instance.ready",)
        assert "generation 2" in (await admin.send(f"/endpoints/{endpoint.id}/rotate")).text
        assert (await admin.send(f"/endpoints/{endpoint.id}/enable")).status_code == 303
        await admin.send(f"/endpoints/{endpoint.id}/remove")
        assert await plane.services.stores.endpoints.list_all() == ()

    async def test_an_endpoint_for_people_shows_neither_a_secret_nor_its_address(
        self, admin: Browser, plane: Plane
    ) -> None:
        refused = await admin.send("/endpoints", kind="ntfy", url="https://ntfy.sh/")
        assert (refused.status_code, 'id="url-problem"' in refused.text) == (400, True)
        assert '<option value="ntfy" selected>' in refused.text
        url = "https://hooks.slack.com/services/T/B/canary"
        made = await admin.send("/endpoints", kind="slack", url=url)
        (endpoint,) = await plane.services.stores.endpoints.list_all()
        assert (endpoint.kind.value, endpoint.url) == ("slack", url)
        page = await admin.text("/endpoints")
        for text in (made.text, page):
            assert "https://hooks.slack.com/***" in text and "canary" not in text
            assert "whsec_" not in text and "Rotate" not in text
        assert '<td data-label="Kind">slack</td>' in page

    async def test_an_endpoint_is_tested(self, admin: Browser, plane: Plane, herd: Herd) -> None:
        for kind, url in (("slack", "https://hooks.slack.com/x"), ("webhook", "https://example.com/x")):
            await admin.send("/endpoints", kind=kind, url=url)
        chat, program = (
            f"/endpoints/{it.id}/test" for it in await plane.services.stores.endpoints.list_all()
        )
        for path in (chat, program):
            assert "The test has arrived (200)." in (await admin.send(path)).text
        assert (len(herd.notifier.told), len(herd.receiver.got)) == (1, 1)
        herd.notifier.answer = DeliveryResult(False, 404, "gone", "Slack <b>answered</b>", None, 0.0)
        page = (await admin.send(chat)).text
        assert "The test has not arrived: Slack &lt;b&gt;answered&lt;/b&gt;." in page
        assert (await admin.text("/audit")).count("webhook.test") >= 3

    async def test_a_key_is_shown_once_and_revoked(self, admin: Browser, plane: Plane) -> None:
        made = await admin.send(
            "/keys", label="anna", scope="write", days="30", maxGpus="4", maxHourlyUsd="$2"
        )
        (key,) = await plane.services.stores.keys.list_all()
        found = re.search(rf"ghk_{key.id}_[0-9A-Za-z]+", made.text)
        assert found is not None
        assert found[0] not in await admin.text("/keys")
        assert (key.limits.max_gpus, str(key.limits.max_hourly_usd)) == (4, "2")
        assert key.expires_at is not None
        await admin.send(f"/keys/{key.id}/revoke")
        assert (await plane.services.stores.keys.get(key.id)).revoked_at is not None

    async def test_the_webhook_secret_of_a_key_is_rotated_and_shown_once(
        self, admin: Browser, plane: Plane
    ) -> None:
        made = await admin.send("/keys", label="anna", scope="write")
        (key,) = await plane.services.stores.keys.list_all()
        # Whoever had a key that leaked has its webhook secret too, and its instances go on.
        for generation in (2, 3):
            assert f"/keys/{key.id}/rotate" in await admin.text("/keys")
            page = (await admin.send(f"/keys/{key.id}/rotate")).text
            (shown,) = re.findall(r"<code>(whsec_[^<]+)</code>", page)
            assert shown not in made.text
            found = (await plane.services.stores.keys.get(key.id)).webhook_secret
            assert found is not None
            assert found.generation == generation
            assert "whsec_" not in await admin.text("/keys")
            await admin.send(f"/keys/{key.id}/revoke")

    async def test_a_key_that_makes_no_sense_is_not_made(self, admin: Browser, plane: Plane) -> None:
        for said in ({"scope": "all"}, {"scope": "read", "days": "x"}, {"scope": "read", "maxGpus": "many"}):
            assert (await admin.send("/keys", **said)).status_code == 400
        assert await plane.services.stores.keys.list_all() == ()

    async def test_an_orphan_is_adopted_stopped_or_deleted(
        self, admin: Browser, herd: Herd, plane: Plane
    ) -> None:
        first, second = (rent_outside_gpuherd(herd.world, f"stray-{n}") for n in range(2))
        await herd.run_for(timedelta(minutes=2))
        page = await admin.text("/orphans")
        assert "stray-0" in page
        assert "/h" in page
        assert "2 machines of somebody else" in await admin.text("/")
        reply = await admin.send(f"/orphans/{first}/adopt")
        assert reply.headers["location"].startswith("/instances/inst_")
        assert (await admin.send(f"/orphans/{second}/stop")).status_code == 303
        assert (await admin.send(f"/orphans/{second}/delete")).status_code == 303
        assert (await admin.send("/orphans/resume")).status_code == 303

    async def test_creates_are_allowed_again(self, admin: Browser, herd: Herd) -> None:
        await herd.flags.put(CREATES_BLOCKED, "the tag was lost")
        assert "the tag was lost" in await admin.text("/")
        await admin.send("/creates/resume")
        assert await herd.flags.get(CREATES_BLOCKED) is None

    async def test_what_runs_can_be_restarted(self, admin: Browser, herd: Herd) -> None:
        it = await herd.settle(await herd.launch("alpha"))
        assert f"/instances/{it.id}/restart" in await admin.text(f"/instances/{it.id}")
        assert (await admin.send(f"/instances/{it.id}/restart")).status_code == 303
        assert f"/instances/{it.id}/restart" not in await admin.text(f"/instances/{it.id}")
        assert (await herd.settle(it)).ports != it.ports

    async def test_what_was_done_is_in_the_audit_log(self, admin: Browser, herd: Herd) -> None:
        it = await herd.settle(await herd.launch("alpha"))
        await admin.send(f"/instances/{it.id}/stop")
        page = await admin.text("/audit")
        assert "instance.stop" in page or "stop" in page
        assert "session.open" in page

    async def test_the_api_is_documented_without_any_other_host(self, admin: Browser) -> None:
        page = await admin.text("/docs")
        assert "/api/instances/{id_or_name}/stop" in page
        assert "cdn" not in page
        assert "https://" not in page
