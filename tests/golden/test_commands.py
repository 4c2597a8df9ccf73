"""Every command that asks the server: for programs, for people at 100 columns, and how it fails."""

from __future__ import annotations

import json
from datetime import timedelta

import httpx

from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from tests.entrypoints.http.conftest import GOOD, KEY
from tests.golden.command_line import CommandLine
from tests.golden.recording import Recording
from tests.support.herd import Herd
from tests.support.metered import spend
from tests.support.unmanaged_machines import a_surplus_machine, look, rent_outside_gpuherd, rent_tagged

MINUTE = timedelta(minutes=1)
WISH = ("--gpu", "RTX 4090 24GB", "--template", "101")
HOOK = "https://hooks.example.com/gpu"
MINE = {"Authorization": f"Bearer {KEY}", "X-Request-Id": "request"}
NOWHERE = "http://127.0.0.1:1"


async def test_cli_up(cli: CommandLine, herd: Herd, recording: Recording) -> None:
    await cli("up", *WISH, "--name", "one")
    await cli("up", *WISH, "--name", "two", "--yes", terminal=True)
    await cli("up", *WISH, "--name", "three", "--quiet", "--health-path", "/health")
    await cli("up", *WISH, "--no-wait")
    await cli("up", *WISH, "--no-wait", terminal=True, typed="y\n")
    await cli("up", *WISH, "--no-wait", terminal=True, typed="n\n")
    full = ("--gpu-num", "2", "--disk", "80", "--region", "CN-HK-01", "--max-price", "9", "--label", "a=b")
    more = ("--billing", "on-demand", "--optimize", "price", "--on-failure", "keep", "--webhook-url", HOOK)
    await cli("up", *WISH, "--name", "full", *full, *more, "--idempotency-key", "once", "--no-wait")
    await cli("up", *WISH, "--name", "other", "--idempotency-key", "once")
    await cli("up", *WISH, "--name", "dear", "--max-price", "0.01")
    await cli("up", *WISH, "--name", "dear", "--max-price", "0.01", terminal=True, typed="y\n")
    await cli("up", "--gpu", "Abacus", "--template", "9")
    herd.world.faults.add(Fault(FaultKind.PULL_FAILURE, count=2, message="no such image"))
    await cli("up", *WISH, "--name", "unlucky")
    await cli("up", *WISH, "--name", "unlucky-too", "--yes", terminal=True)
    await cli("up", *WISH, "--name", "late", "--timeout", "5s")
    await cli("up", *WISH, "--name", "later", "--timeout", "5s", "--yes", terminal=True)
    recording.compare()


async def test_cli_up_with_a_slash_in_the_name_rents_nothing(
    cli: CommandLine, herd: Herd, recording: Recording
) -> None:
    await cli("up", *WISH, "--name", "a/b")
    await cli("up", *WISH, "--name", "a/b", "--yes", terminal=True)
    recording.compare()
    assert not herd.world.machines


async def test_cli_instances(
    cli: CommandLine, http: httpx.AsyncClient, herd: Herd, recording: Recording
) -> None:
    await cli.both("ls")
    check = {"path": "/health"}
    wish = {**GOOD, "name": "checked", "labels": {"team": "a"}, "healthCheck": check, "webhookUrl": HOOK}
    await http.post("/api/instances", json=wish, headers=MINE)
    await herd.run_for(3 * MINUTE)
    await http.post("/api/instances", json=GOOD, headers=MINE)
    await cli.both("ls")
    await cli.both("ls", "--label", "team=a", "--status", "ready", "--name", "checked")
    await cli.both("ls", "--limit", "1")
    await cli("ls", "--limit", "1", "--all", "--quiet")
    await cli.both("show", "checked")
    await cli("show", "checked", "--quiet")
    await cli.both("show", "job")
    await cli.both("ssh", "checked", "--print")
    await cli("ssh", "checked", "--json", "--", "nvidia-smi", "-L")
    await cli("ssh", "job", "--print")
    await cli("open", "checked", "--print")
    await cli("open", "checked", "--json")
    await cli("open", "checked", "--print", "--port", "9999")
    await cli.both("why", "job")
    await cli("wait", "job", "--timeout", "2s")
    await cli("wait", "job", interrupted_after=0)
    await cli("wait", "job")
    await cli("wait", "checked", terminal=True)
    await cli.both("why", "checked")
    await cli("show", "inst_", terminal=True)
    await cli.both("show", "nobody")
    await cli.both("wait", "nobody")
    recording.compare()


async def test_cli_operations(
    cli: CommandLine, http: httpx.AsyncClient, herd: Herd, recording: Recording
) -> None:
    await cli("up", *WISH, "--name", "one", "--quiet")
    await cli.both("start", "one")
    await cli("stop", "one")
    await cli("wait", "one", "--for", "exited", "--quiet")
    await cli("start", "one", "--wait", "--health-path", "/health", "--webhook-url", HOOK)
    await cli("stop", "one", "--wait", terminal=True)
    await cli("start", "one", "--wait", terminal=True)
    await cli("stop", "one", terminal=True)
    await herd.run_for(3 * MINUTE)
    herd.world.faults.add(Fault(FaultKind.SOLD_OUT, endpoints=(ApiEndpoint.START,)))
    await cli("start", "one", "--wait", "--timeout", "2h")
    await cli.both("why", "one")
    await cli("rm", "one")
    await cli("rm", "one", terminal=True, typed="n\n")
    await cli("rm", "one", terminal=True)
    await cli("rm", "one", terminal=True, typed="y\n")
    await cli("rm", "one", "--yes", "--wait")
    await cli("rm", "nobody", "--yes", "--quiet")
    await cli.both("stop", "nobody")
    recording.compare()


async def test_cli_lease(cli: CommandLine, herd: Herd, recording: Recording) -> None:
    await cli("up", *WISH, "--name", "one", "--lease", "8h", "--silence", "2d", "--then", "stop", "--quiet")
    await cli("show", "one", terminal=True)
    await cli("ls", terminal=True)
    await cli.both("lease", "one", "+2h")
    await cli("lease", "one", "+2h", terminal=True)
    await cli("lease", "one", "3d", "--then", "delete", terminal=True)
    await cli("lease", "one", "--until", "2026-01-02T18:00Z", terminal=True)
    await cli("lease", "one", "--none", terminal=True)
    await cli("lease", "one", terminal=True)
    await cli("lease", "one", "soon", terminal=True)
    await cli("keep", "one", terminal=True)
    await cli.both("keep", "one")
    await cli.both("keep", "nobody")
    recording.compare()


async def test_cli_restart(cli: CommandLine, herd: Herd, recording: Recording) -> None:
    await cli("up", *WISH, "--name", "one", "--quiet")
    await cli("restart", "one")
    await cli.both("restart", "one")
    await cli("wait", "one", "--quiet")
    await cli("restart", "one", "--wait")
    await cli("restart", "one", "--wait", terminal=True)
    lost = Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, endpoints=(ApiEndpoint.RESTART,))
    herd.world.faults.add(lost)
    await cli("restart", "one", "--wait")
    await cli("restart", "one", "--wait", terminal=True)
    await cli.both("why", "one")
    recording.compare()


async def test_cli_volumes(cli: CommandLine, recording: Recording) -> None:
    create = ("volumes", "create", "data", "--region", "US-CA-06", "--size", "100")
    await cli.both("volumes", "ls")
    await cli(*create, terminal=True)
    await cli.both(*create)
    await cli("volumes", "create", "more", "--region", "US-CA-06", "--size", "10", "--quiet")
    await cli.both("volumes", "ls")
    await cli("volumes", "ls", "--quiet")
    await cli("plan", *WISH, "--volume", "nobody:/data")
    await cli("volumes", "rm", "data", terminal=True, typed="n\n")
    await cli("volumes", "rm", "data", "--yes", terminal=True)
    await cli("volumes", "rm", "more", "--yes")
    await cli.both("volumes", "rm", "data", "--yes")
    recording.compare()


async def test_cli_prewarm(cli: CommandLine, herd: Herd, recording: Recording) -> None:
    create = ("prewarm", "create", "ghcr.io/team/trainer:1", "--region", "US-CA-06")
    await cli.both("prewarm", "ls")
    await cli(*create, "--wait", terminal=True)
    await cli.both(*create)
    await cli("prewarm", "create", "other:1", "--region", "US-CA-06", "--product", "4090.16c62g", "--quiet")
    private = ("prewarm", "create", "registry.example.com/team/trainer:1.4", "--region", "US-CA-06", "--wait")
    await cli.both(*private)
    await cli.both("prewarm", "ls")
    await cli("prewarm", "ls", "--state", "failed", "--quiet")
    herd.world.prewarms.tasks_max = 3
    await cli.both("prewarm", "create", "more:1", "--region", "US-CA-06")
    await cli("prewarm", "rm", "other:1", terminal=True, typed="n\n")
    await cli("prewarm", "rm", "other:1", "--yes", terminal=True)
    await cli("prewarm", "rm", "ghcr.io/team/trainer:1", "--yes")
    await cli.both("prewarm", "rm", "other:1", "--yes")
    recording.compare()


async def test_cli_logs(cli: CommandLine, herd: Herd, recording: Recording) -> None:
    await herd.launch(name="one")
    await cli.both("logs", "one")
    await herd.run_for(3 * MINUTE)
    await cli.both("logs", "one")
    await cli("logs", "one", "--system")
    await cli.both("logs", "nobody")
    recording.compare()


async def test_cli_registry(cli: CommandLine, recording: Recording) -> None:
    await cli.both("registry", "ls")
    recording.compare()


async def test_cli_catalogue(cli: CommandLine, recording: Recording) -> None:
    await cli.both("offers", "--gpu", "4090")
    await cli("offers", terminal=True)
    await cli("offers", "--billing", "on-demand", "--quiet")
    await cli.both("offers", "--gpu", "Abacus")
    await cli.both("templates")
    await cli("templates", "--quiet")
    await cli.both("regions")
    await cli("regions", "--quiet")
    recording.compare()


async def test_cli_plan(cli: CommandLine, http: httpx.AsyncClient, herd: Herd, recording: Recording) -> None:
    await cli.both("plan", *WISH)
    await cli.both("plan", *WISH, "--region", "CN-HK-01", "--max-price", "0.01", "--wait-for-capacity", "60")
    await cli.both("plan", *WISH, "--command", "sleep 9", "--port", "8000/http", "--env", "MODE=train")
    await cli.both("plan", "--gpu", "Abacus", "--template", "101")
    await cli.both("plan", "--gpu", "4090", "--template", "9")
    herd.world.faults.add(Fault(FaultKind.OUTAGE))
    await http.post("/api/cache/clear", headers=MINE)
    await cli.both("plan", *WISH)
    recording.compare()


async def test_cli_jobs(cli: CommandLine, http: httpx.AsyncClient, herd: Herd, recording: Recording) -> None:
    await cli.both("jobs")
    herd.receiver.accepts = lambda _: False
    await http.post("/api/instances", json={**GOOD, "webhookUrl": HOOK}, headers=MINE)
    await herd.run_for(2 * MINUTE)
    listed = await cli.both("jobs")
    await cli.both(
        "jobs", "--type", "send_webhook", "--status", "pending", "--instance", "job", "--limit", "1"
    )
    await cli("jobs", "--quiet", "--all", "--limit", "2")
    await cli.both("jobs", "show", json.loads(listed)["jobs"][0]["id"])
    await cli.both("jobs", "stats")
    await cli.both("jobs", "show", "job_nothing")
    await cli.both("jobs", "--status", "failed")
    recording.compare()


async def test_cli_orphans(cli: CommandLine, herd: Herd, recording: Recording) -> None:
    await cli.both("orphans")
    stranger = rent_outside_gpuherd(herd.world, "somebody-elses")
    lost = rent_tagged(herd, 1)
    surplus = await a_surplus_machine(herd, 2)
    herd.auto_delete = False
    await look(herd, 600)
    await look(herd, 3000)
    await cli.both("orphans")
    await cli.both("orphans", "--verdict", "surplus")
    await cli("orphans", "--quiet")
    await cli("orphans", "stop", stranger)
    await cli("orphans", "stop", stranger, terminal=True)
    await cli("orphans", "adopt", lost, terminal=True)
    await cli("orphans", "adopt", stranger)
    await cli.both("orphans", "adopt", "--all")
    await cli("orphans", "delete", surplus)
    await cli("orphans", "delete", surplus, terminal=True, typed="n\n")
    await cli("orphans", "delete", surplus, terminal=True, typed="y\n")
    await cli("orphans", "delete", surplus, "--yes")
    await cli.both("orphans", "delete", "nobody", "--yes")
    await cli.both("orphans", "resume", "--yes")
    recording.compare()


async def test_cli_orphans_braked(cli: CommandLine, herd: Herd, recording: Recording) -> None:
    for n in range(3):
        await a_surplus_machine(herd, n)
    await herd.run_for(timedelta(seconds=70))
    await cli.both("orphans")
    await cli("orphans", "resume", terminal=True, typed="y\n")
    recording.compare()


async def test_cli_webhooks(
    cli: CommandLine, http: httpx.AsyncClient, herd: Herd, recording: Recording
) -> None:
    await cli.both("webhooks", "ls")
    one = json.loads(await cli("webhooks", "add", HOOK, "--event", "instance.ready", "--label", "ours"))["id"]
    await cli("webhooks", "add", "https://other.example.com/", terminal=True)
    await cli("webhooks", "add", "https://third.example.com/", "--quiet")
    await cli.both("webhooks", "add", "http://10.0.0.1/", "--event", "odd")
    await cli.both("webhooks", "rotate", one)
    herd.receiver.accepts = lambda url: "other" not in url
    await http.post("/api/instances", json=GOOD, headers=MINE)
    await herd.run_for(2 * MINUTE)
    await cli.both("webhooks", "ls")
    await cli.both("webhooks", "show", one)
    listed = json.loads(await cli.both("webhooks", "deliveries"))["deliveries"]
    await cli.both("webhooks", "deliveries", "--state", "failed", "--type", "instance.ready", "--limit", "1")
    await cli("webhooks", "deliveries", "--instance", "job", "--endpoint", one, "--quiet")
    failing = next(it for it in listed if it["url"].startswith("https://other"))["id"]
    await cli.both("webhooks", "show", failing)
    await cli.both("webhooks", "replay", failing)
    await cli.both("webhooks", "replay", "--since", "1h")
    await cli("webhooks", "replay", "--since", "1h", "--dead", "--endpoint", one)
    await cli.both("webhooks", "test", one)
    await cli.both("webhooks", "test", "https://other.example.com/")
    await cli("webhooks", "test", "https://other.example.com/", "--quiet")
    await cli.both("webhooks", "enable", one)
    await cli("webhooks", "rm", one, terminal=True)
    await cli.both("webhooks", "rm", one)
    await cli.both("webhooks", "show", "msg_nothing")
    recording.compare()


async def test_cli_notifications(cli: CommandLine, recording: Recording) -> None:
    slack = "https://hooks.slack.com/services/T/B/secret"
    one = json.loads(await cli("webhooks", "add", slack, "--kind", "slack", "--label", "#gpus"))["id"]
    await cli("webhooks", "add", "mailto:ops@example.com", "--kind", "email", terminal=True)
    await cli("webhooks", "add", "https://ntfy.sh/herd", "--kind", "ntfy", "--event", "instance.ready", "-q")
    await cli.both("webhooks", "ls")
    await cli.both("webhooks", "show", one)
    await cli.both("webhooks", "test", one)
    await cli.both("webhooks", "rotate", one)
    await cli("webhooks", "add", "https://ntfy.sh/", "--kind", "ntfy", terminal=True)
    await cli("webhooks", "add", slack, "--kind", "pager", terminal=True)
    recording.compare()


async def test_cli_keys(cli: CommandLine, recording: Recording) -> None:
    await cli.both("keys", "ls")
    await cli("audit", "ls", terminal=True)
    limits = ("--max-gpus", "2", "--max-usd-per-hour", "1.50", "--rpm", "60")
    created = await cli("keys", "create", "--scope", "write", "--expires", "30d", "--label", "Ada", *limits)
    made = json.loads(created)
    await cli("keys", "create", "--scope", "read", terminal=True)
    await cli("keys", "create", "--scope", "admin", "--quiet")
    await cli("ls", key=made["key"])
    await cli.both("keys", "ls")
    await cli("keys", "ls", "--quiet")
    await cli("keys", "ls", key=made["key"])
    await cli("keys", "ls", key=made["key"], terminal=True)
    await cli("keys", "webhook-secret", key=made["key"])
    await cli("keys", "webhook-secret", key=made["key"], terminal=True)
    await cli("keys", "webhook-secret", "--quiet", key=made["key"])
    await cli("keys", "webhook-secret", "--rotate", key=made["key"], terminal=True)
    await cli.both("keys", "webhook-secret", made["id"])
    await cli("keys", "webhook-secret", terminal=True)
    await cli("keys", "revoke", made["id"], terminal=True)
    await cli.both("keys", "revoke", made["id"])
    await cli.both("keys", "revoke", "nothing1")
    await cli.both("audit", "ls", "--limit", "2")
    await cli("audit", "ls", "--limit", "2", "--all")
    await cli.both("audit", "verify")
    await cli("audit", "verify", "--quiet")
    recording.compare()


async def test_cli_costs(cli: CommandLine, herd: Herd, recording: Recording) -> None:
    await cli.both("costs")
    await cli.both("leftovers")
    await spend(herd)
    await cli.both("costs")
    await cli("costs", "--by", "label:team", "--since", "1w", terminal=True)
    await cli("costs", "--by", "label:team", "--since", "2025-12-30", "--until", "2026-01-01", "--csv")
    await cli("costs", "--by", "day", "--csv", terminal=True)
    await cli.both("costs", "--by", "odd")
    await cli.both("costs", "--since", "then")
    await cli("costs", "--csv", "--json")
    await cli.both("leftovers")
    await cli("leftovers", "--quiet")
    await cli.both("balance")
    recording.compare()


async def test_cli_events(
    cli: CommandLine, http: httpx.AsyncClient, herd: Herd, recording: Recording
) -> None:
    await cli.both("events")
    await http.post("/api/instances", json=GOOD, headers=MINE)
    await cli("events", "--follow", interrupted_after=0)
    await cli("events", "-f", "--limit", "1", terminal=True, interrupted_after=1)
    await herd.run_for(2 * MINUTE)
    await cli.both("events")
    await cli.both("events", "job", "--type", "instance.created")
    await cli.both("events", "--since", "3")
    await cli("events", "account", "-n", "2")
    await cli.both("events", "nobody")
    recording.compare()


async def test_cli_failures(cli: CommandLine, herd: Herd, recording: Recording) -> None:
    for terminal in (False, True):
        await cli("ls", key=None, terminal=terminal)
        await cli("ls", key="ghk_odd", terminal=terminal)
        await cli("ls", url=NOWHERE, terminal=terminal)
        await cli("ls", url="odd", terminal=terminal)
        await cli("up", *WISH, "--yes", url=NOWHERE, terminal=terminal)
        await cli("events", "-f", url=NOWHERE, terminal=terminal, interrupted_after=0)
        await cli(
            "up", "--gpu", "x" * 201, "--template", "101", "--name", "a--gh1-b", "-y", terminal=terminal
        )
    herd.world.faults.add(Fault(FaultKind.OUTAGE))
    await cli.both("offers")
    recording.compare()
