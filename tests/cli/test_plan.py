"""`gpuherd plan` and the question before `gpuherd up`: what is asked, what is shown, how it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuherd.entrypoints.cli.launch_commands import plan as plan_command
from gpuherd.entrypoints.cli.launch_commands import up as up_command
from tests.cli.support import Answer, Cli, FakeApi, SeenRequest, accepted, problem
from tests.cli.terminal import terminal
from tests.cli.test_terminal import EVIL, SEEN, assert_tame, live

WISH = ("--gpu", "4090", "--template", "t1")
UP = ("up", *WISH, "--name", "train-1")
NOTHING = {
    "code": "NO_OPTIMAL_PRODUCT_ANY_REGION",
    "message": "no offer can be had",
    "details": {"regions": []},
}


def offer(rank: int, region: str, price: str, **more: Any) -> dict[str, Any]:
    base = {"productName": "RTX 4090 24GB", "available": True, "stock": "high", "cpu": 16, "memory": 96}
    return {"rank": rank, "productId": "p1", "region": region, "hourlyPrice": price, **base, **more}


def a_plan(**more: Any) -> dict[str, Any]:
    """A plan as the API tells it."""
    return {
        "fits": True,
        "reasons": [],
        "warnings": [],
        "gpuNum": 1,
        "billingMode": "spot",
        "estimatedReadyInSeconds": 125,
        "estimateBasis": {"source": "history", "rentals": 7},
        "offers": [offer(1, "CN-HK-01", "0.35"), offer(2, "AS-SGP-02", "0.4")],
        "refused": [
            {
                "productId": "p1",
                "productName": "RTX 4090 24GB",
                "region": "US-01",
                "hourlyPrice": "9",
                "reason": "too dear",
            }
        ],
        **more,
    }


NO_FIT = a_plan(fits=False, offers=[], reasons=[NOTHING])


def scripted(plan: Answer | dict[str, Any]) -> Any:
    def answer(seen: SeenRequest) -> Answer:
        if seen.path == "/api/plans":
            return plan if isinstance(plan, Answer) else Answer(plan)
        if seen.method == "POST":
            return Answer(accepted(), 201)
        return Answer(live("ready"))

    return answer


def rented(api: FakeApi) -> bool:
    return any((seen.method, seen.path) == ("POST", "/api/instances") for seen in api.seen)


def test_a_plan_is_asked_for_with_what_was_said_and_no_name(cli: Cli, api: FakeApi) -> None:
    api.script(a_plan())
    result = cli("plan", *WISH, "--gpu-num", "2", "--region", "CN-HK-01", "--max-price", "0.5")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == a_plan()
    (asked,) = api.seen
    assert (asked.method, asked.path) == ("POST", "/api/plans")
    assert asked.body == {
        "productName": "4090",
        "templateId": "t1",
        "gpuNum": 2,
        "regions": ["CN-HK-01"],
        "maxHourlyPrice": "0.5",
    }


def test_a_plan_knows_the_ends_that_were_agreed(cli: Cli, api: FakeApi) -> None:
    api.script(a_plan())
    assert cli("plan", *WISH, "--lease", "8h", "--silence", "30m", "--then", "delete").exit_code == 0
    (asked,) = api.seen
    assert asked.body["lease"] == {"seconds": 28_800, "then": "delete"}
    assert asked.body["autoStop"] == {"silenceSeconds": 1800, "then": "delete"}


def test_a_plan_takes_every_wish_that_a_create_takes() -> None:
    only_up = {"plan", "yes", "no_wait", "timeout", "idempotency_key", "quiet"}
    planned = {it.name for it in plan_command.params} - {"hold"}
    assert planned == {it.name for it in up_command.params} - only_up


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("NO_OPTIMAL_PRODUCT_ANY_REGION", 6), ("QUOTA_EXCEEDED", 7), ("REGISTRY_AUTH_NOT_FOUND", 5)],
)
def test_a_script_learns_from_the_exit_code_that_it_does_not_fit(
    cli: Cli, api: FakeApi, code: str, exit_code: int
) -> None:
    plan = a_plan(fits=False, reasons=[{"code": code, "message": "no", "details": {}}])
    api.script(plan)
    result = cli("plan", *WISH)
    assert (result.exit_code, json.loads(result.stdout)) == (exit_code, plan)


def test_a_refused_question_is_an_error(cli: Cli, api: FakeApi) -> None:
    api.script(problem(404, "PRODUCT_NOT_FOUND", "not found", detail="no product is called '4090'"))
    result = cli("plan", *WISH)
    assert (result.exit_code, result.stdout) == (4, "")
    assert json.loads(result.stderr)["error"]["code"] == "PRODUCT_NOT_FOUND"


def test_a_script_is_never_asked(cli: Cli, api: FakeApi) -> None:
    api.handler = scripted(a_plan())
    result = cli(*UP)
    assert result.exit_code == 0
    assert [seen.path for seen in api.seen if seen.method == "POST"] == ["/api/instances"]
    assert "[y/N]" not in result.output


@pytest.mark.processes
class TestOnATerminal:
    def test_the_table_and_the_sum(self, api: FakeApi) -> None:
        api.script(a_plan(warnings=["this key may only look"]))
        with terminal(api.url, "plan", *WISH, columns=120) as screen:
            assert screen.end() == 0
        head, first, second, not_tried, refused, best, note = screen.display
        assert head.split() == ["#", "GPU", "REGION", "PRICE", "STOCK", "READY", "IN", "CPU", "MEMORY"]
        assert " ".join(first.split()) == "1 RTX 4090 24GB CN-HK-01 $0.35/h high ~2 min 16 96 GB"
        assert second.split()[4:6] == ["AS-SGP-02", "$0.40/h"]
        assert not_tried.split() == ["NOT", "TRIED", "REGION", "PRICE", "WHY", "NOT"]
        assert refused.split()[-4:] == ["US-01", "$9.00/h", "too", "dear"]
        assert best == "RTX 4090 24GB · CN-HK-01 · $0.35/h spot, ready in about 2 min (7 earlier rentals)"
        assert note == "note: this key may only look"
        assert "\x1b[2m" in screen.raw

    def test_a_plan_cannot_command_the_terminal(self, api: FakeApi) -> None:
        evil = {"productName": EVIL, "region": EVIL, "stock": EVIL, "reason": EVIL}
        reasons = [{"code": EVIL, "message": EVIL, "details": {}}]
        offers, refused = [{**offer(1, "", "0.1"), **evil}], [evil]
        for plan in (
            a_plan(offers=offers, refused=refused, warnings=[EVIL]),
            a_plan(fits=False, offers=offers, refused=refused, reasons=reasons, warnings=[EVIL]),
        ):
            api.script(plan)
            with terminal(api.url, "plan", *WISH, columns=400) as screen:
                screen.end()
            assert_tame(screen, 400)
            assert SEEN in screen.text

    @pytest.mark.parametrize(("answer", "code"), [("y\r", 0), ("n\r", 1), ("\r", 1), ("\x03", 130)])
    def test_only_a_yes_rents(self, api: FakeApi, answer: str, code: int) -> None:
        api.handler = scripted(a_plan())
        with terminal(api.url, *UP) as screen:
            screen.until("Rent it? [y/N]")
            assert not rented(api)
            screen.answer(answer)
            assert screen.end() == code
        assert rented(api) == (code == 0)
        assert ("nothing was rented" in screen.text) == (code != 0)
        assert "RTX 4090 24GB · CN-HK-01 · $0.35/h spot" in screen.text
        assert "if that is gone: AS-SGP-02 $0.40/h" in screen.text

    @pytest.mark.parametrize("option", ["--yes", "-y", "--json", "--quiet"])
    def test_who_is_not_to_be_asked_is_not(self, api: FakeApi, option: str) -> None:
        api.handler = scripted(a_plan())
        with terminal(api.url, *UP, option) as screen:
            assert screen.end() == 0
        assert api.seen[0].path == "/api/instances"

    def test_what_cannot_be_had_is_not_even_asked_for(self, api: FakeApi) -> None:
        api.handler = scripted(NO_FIT)
        with terminal(api.url, *UP) as screen:
            assert screen.end() == 6
        assert "no offer can be had" in screen.text
        assert not rented(api)

    def test_a_wait_is_asked_for_as_a_wait(self, api: FakeApi) -> None:
        api.handler = scripted({**NO_FIT, "waitForCapacity": {"seconds": 60}})
        with terminal(api.url, *UP, "--wait-for-capacity", "60") as screen:
            screen.until("Order it, and wait for an offer? [y/N]")
            screen.type("y\r")
            assert screen.end() == 0
        assert rented(api)

    def test_a_wait_does_not_help_against_a_limit(self, api: FakeApi) -> None:
        quota = {"code": "QUOTA_EXCEEDED", "message": "too much", "details": {}}
        plan = a_plan(fits=False, reasons=[quota], waitForCapacity={"seconds": 60})
        api.handler = scripted(plan)
        with terminal(api.url, *UP, "--wait-for-capacity", "60") as screen:
            assert screen.end() == 7
        assert not rented(api)

    @pytest.mark.parametrize(
        "refusal",
        [
            problem(503, "NETWORK_ERROR", detail="the cloud is away"),
            problem(404, "NOT_FOUND", detail="no route"),
        ],
    )
    def test_without_a_plan_it_is_asked_all_the_same(self, api: FakeApi, refusal: Answer) -> None:
        api.handler = scripted(refusal)
        with terminal(api.url, *UP) as screen:
            screen.until("Order it all the same? [y/N]")
            screen.type("y\r")
            assert screen.end() == 0
        assert "no plan can be made now: " in screen.text
        assert rented(api)

    def test_a_wrong_wish_ends_before_the_question(self, api: FakeApi) -> None:
        api.handler = scripted(problem(404, "TEMPLATE_NOT_FOUND", detail="there is no template t1"))
        with terminal(api.url, *UP) as screen:
            assert screen.end() == 4
        assert not rented(api)


HELD = {"planId": "plan_7", "expiresAt": "2026-01-01T00:10:00.000000Z", "heldHourlyPrice": "0.35"}


def test_a_held_plan_is_told_with_the_command_that_rents_it(cli: Cli, api: FakeApi) -> None:
    api.script(a_plan(**HELD))
    assert json.loads(cli("plan", *WISH, "--hold").stdout) == a_plan(**HELD)
    assert api.seen[0].body["hold"] is True
    with terminal(api.url, "plan", *WISH, "--hold") as screen:
        assert screen.end() == 0
    *_, price, command = screen.display
    assert price == "held until 00:10:00 UTC, for at most $0.35/h; rent it with:"
    assert command == "gpuherd up --plan plan_7"


def test_a_plan_that_is_not_held_does_not_say_so(cli: Cli, api: FakeApi) -> None:
    api.script(a_plan())
    assert "hold" not in cli("plan", *WISH).stdout
    assert "hold" not in api.seen[0].body
