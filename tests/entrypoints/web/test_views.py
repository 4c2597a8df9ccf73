"""View models: pure functions from what we know to what a page shows."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from gpuherd.domain.api_key import Scope
from gpuherd.domain.cloud.machine import ConnectionDetails
from gpuherd.domain.cloud.offer import Offer
from gpuherd.domain.errors import FieldProblem
from gpuherd.domain.instance.instance import Goal, Status
from gpuherd.domain.instance.instance_event import Event
from gpuherd.domain.instance.launch_spec import LaunchSpec
from gpuherd.entrypoints.web import page_rendering
from gpuherd.entrypoints.web.catalogue_pages import BAR_WIDTH, price_groups
from gpuherd.entrypoints.web.instance_pages import (
    WIDTH,
    can_start,
    can_stop,
    commands_for,
    connection_options,
    cost_at,
    cost_so_far,
    daily_price_of,
    is_moving,
    link,
    row_of,
    status_spans,
)
from gpuherd.entrypoints.web.launch_pages import default_values, form_values, launch_body_of
from gpuherd.entrypoints.web.overview_pages import alerts_of
from gpuherd.entrypoints.web.page_forms import Form, problems_by_field
from gpuherd.entrypoints.web.page_rendering import (
    TEMPLATES,
    as_typed,
    coded,
    environment,
    event_types,
    navigation,
    visible,
)
from gpuherd.entrypoints.web.service_pages import chapters_of
from gpuherd.usecases.service.read_service_health import SystemStatus
from tests.cli.support import CLI
from tests.support.builders import a_running_instance, an_instance
from tests.support.fake_clock import START


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


class TestWords:
    @pytest.mark.parametrize(
        ("amount", "shown"),
        [
            (None, "–"),
            (Decimal("0"), "$0.00"),
            (Decimal("0.2"), "$0.20"),
            (Decimal("0.175"), "$0.175"),
            (Decimal("0.00001"), "$0.00"),
            (Decimal("1.23456"), "$1.2346"),
            (Decimal("48.964"), "$48.96"),
            (Decimal("1489.2"), "$1,489.20"),
        ],
    )
    def test_money(self, amount: Decimal | None, shown: str) -> None:
        assert page_rendering.money(amount) == shown

    def test_a_price_is_for_an_hour(self) -> None:
        assert page_rendering.hourly(Decimal("0.35")) == "$0.35/h"
        assert page_rendering.hourly(Decimal("0.208333333")) == "$0.20834/h", "as the command line says it"

    def test_every_status_has_a_look(self) -> None:
        looks = {it: page_rendering.look_of(an_instance(status=it)) for it in Status}
        assert looks[Status.FAILED] == page_rendering.BAD
        assert looks[Status.RUNNING] == page_rendering.MOVING, "it is not usable yet"
        assert page_rendering.look_of(a_running_instance()) == page_rendering.GOOD
        assert looks[Status.EXITED] == page_rendering.IDLE


class TestVisible:
    @given(st.text())
    def test_nothing_invisible_is_left_but_line_ends(self, text: str) -> None:
        shown = str(visible(text))
        assert all(char.isprintable() or char in "\n\t\u3000" or char.isspace() for char in shown)
        assert "\u202e" not in shown
        assert "\x1b" not in shown

    def test_tricks_become_plain_text(self) -> None:
        assert visible("a\u202egnp.exe\x1b[2J\u200b") == "a\\u202egnp.exe\\x1b[2J\\u200b"

    def test_names_in_any_script_stay(self) -> None:
        assert visible("שלום 数据 naïve") == "שלום 数据 naïve"

    def test_our_own_markup_and_numbers_stay(self) -> None:
        assert visible(Markup("<b>\u202e</b>")) == "<b>\u202e</b>"
        assert visible(3) == 3

    def test_templates_escape_and_show_what_hides(self) -> None:
        shown = environment().from_string("{{ it }}|{{ it | typed }}").render(it="<b>\u202e")
        assert shown == "&lt;b&gt;\\u202e|&lt;b&gt;\u202e"

    def test_backticks_mean_code_and_nothing_else(self) -> None:
        assert coded("a `<b>` c") == "a <code>&lt;b&gt;</code> c"
        assert coded("<i>` x") == "&lt;i&gt; x"

    def test_what_was_typed_comes_back_as_it_was(self) -> None:
        assert as_typed('"><img>\u200d') == "&#34;&gt;&lt;img&gt;\u200d"


class TestInstanceRows:
    def test_what_goes_on_would_cost_so_much_if_nothing_changed(self) -> None:
        cost = cost_at(Decimal("1.05"))
        assert (cost.hourly_usd, cost.daily_usd, cost.monthly_usd) == (
            Decimal("1.05"),
            Decimal("25.20"),
            Decimal("766.50"),
        )

    def test_the_price_of_a_stopped_one_is_what_it_costs_while_it_runs_and_a_day_of_it_is_its_disk(
        self,
    ) -> None:
        stopped = a_running_instance(1, status=Status.EXITED, disk_hourly_usd=Decimal("0.05"))
        assert row_of(stopped).hourly_usd == Decimal("0.40")
        assert daily_price_of(stopped) == Decimal("1.20")

    def test_a_row_says_what_was_rented(self) -> None:
        row = row_of(
            a_running_instance(1, wish=LaunchSpec("RTX 4090 24GB", "101", gpu_num=2), labels={"a": "b"})
        )
        assert (row.gpu, row.region, row.hourly_usd) == ("2 × RTX 4090 24GB", "CN-HK-01", Decimal("0.70"))
        assert row.labels == (("a", "b"),)
        assert row.expected_at is None

    def test_what_is_on_its_way_is_in_motion_and_has_an_expectation(self) -> None:
        creating = an_instance()
        assert is_moving(creating)
        assert row_of(creating).expected_at == creating.estimated_ready_at
        assert not is_moving(a_running_instance())
        assert not is_moving(an_instance(status=Status.FAILED))

    def test_buttons_are_there_only_where_they_work(self) -> None:
        assert can_stop(a_running_instance())
        assert not can_start(a_running_instance())
        exited = a_running_instance(status=Status.EXITED, goal=Goal.STOPPED)
        assert can_start(exited)
        assert not can_stop(exited)


def story(*steps: tuple[float, str]) -> list[Event]:
    return [
        Event("inst_1", n, f"instance.{after or 'planned'}", START + seconds(at), after=after)
        for n, (at, after) in enumerate(steps, start=1)
    ]


class TestHistory:
    EVENTS = story((0, "creating"), (1, ""), (60, "starting"), (120, "running"), (120, "ready"))

    def test_each_status_lasts_until_the_next(self) -> None:
        found = status_spans(a_running_instance(), self.EVENTS, START + seconds(300))
        assert [(it.status, it.seconds, it.is_now) for it in found] == [
            ("creating", 60, False),
            ("starting", 60, False),
            ("running", 0, False),
            ("ready", 180, True),
        ]

    def test_an_end_lasts_for_ever(self) -> None:
        events = story((0, "creating"), (60, "failed"))
        found = status_spans(an_instance(status=Status.FAILED), events, START + seconds(300))
        assert [it.seconds for it in found] == [60, None]

    @given(st.lists(st.tuples(st.floats(0, 1e6), st.sampled_from(["creating", "running", "exited", ""]))))
    def test_the_bar_never_leaves_its_place(self, steps: list[tuple[float, str]]) -> None:
        found = status_spans(an_instance(), story(*sorted(steps)), START + seconds(2e6))
        end = 0
        for it in found:
            assert it.x == end
            end = it.x + it.width
        assert 0 <= end <= WIDTH

    def test_only_running_time_is_paid_for(self) -> None:
        cost = cost_so_far(a_running_instance(), self.EVENTS, START + seconds(60 + 3600))
        assert cost == Decimal("0.35")
        assert cost_so_far(an_instance(), self.EVENTS, START) is None

    def test_a_disk_is_paid_for_as_long_as_there_is_a_machine(self) -> None:
        events = story((0, "creating"), (60, "starting"), (60 + 3600, "exited"))
        it = a_running_instance(status=Status.EXITED, disk_hourly_usd=Decimal("0.05"))
        assert cost_so_far(it, events, START + seconds(60 + 3 * 3600)) == Decimal("0.50")
        gone = replace(it, status=Status.DELETED)
        events += story((60 + 2 * 3600, "deleted"))
        assert cost_so_far(gone, events, START + seconds(60 + 9 * 3600)) == Decimal("0.45")


class TestAttention:
    def test_a_healthy_herd_needs_nobody(self) -> None:
        assert alerts_of([a_running_instance()], SystemStatus(), is_admin=True) == []

    def test_everything_that_is_wrong_is_said(self) -> None:
        system_status = SystemStatus(
            breaker="OPEN",
            oldest_due_s=100,
            creates_blocked="the tag was lost",
            collector_braked="too many",
            dead_deliveries=2,
            failed_jobs=1,
            unknown=[an_instance(5)],
        )
        titles = [
            it.title for it in alerts_of([an_instance(status=Status.FAILED)], system_status, is_admin=True)
        ]
        assert titles == [
            "New machines are not rented",
            "Surplus machines are not removed",
            "Novita cannot be reached",
            "The workers do not keep up",
            "job-1 failed",
            "job-5: outcome not known yet",
            "2 webhooks given up",
            "1 failed job",
        ]

    def test_only_an_admin_gets_the_button_that_allows_creates(self) -> None:
        (mine,) = alerts_of([], SystemStatus(creates_blocked="why"), is_admin=False)
        (theirs,) = alerts_of([], SystemStatus(creates_blocked="why"), is_admin=True)
        assert (mine.action, theirs.action) == ("", "/creates/resume")

    def test_a_hundred_failures_do_not_fill_the_page(self) -> None:
        failed = [an_instance(n, status=Status.FAILED) for n in range(100)]
        found = alerts_of(failed, SystemStatus(), is_admin=False)
        assert len(found) == 6
        assert found[-1].title == "95 more failed"


class TestPrices:
    def offers(self) -> list[Offer]:
        def offer(name: str, region: str, spot: str | None, demand: str, available: bool = True) -> Offer:
            price = None if spot is None else Decimal(spot)
            return Offer(f"{name}.x", name, region, "c", available, "high", price, Decimal(demand))

        return [
            offer("big", "A", "1.00", "2.00"),
            offer("small", "B", "0.20", "0.40", available=False),
            offer("small", "C", "0.30", "0.50"),
            offer("small", "D", None, "0.25"),
        ]

    def test_the_cheapest_that_can_be_had_comes_first(self) -> None:
        groups = price_groups(self.offers())
        assert [(it.product, it.from_usd) for it in groups] == [
            ("small", Decimal("0.25")),
            ("big", Decimal("1.00")),
        ]
        assert [(it.region, it.is_cheapest) for it in groups[0].rows] == [
            ("D", True),
            ("C", False),
            ("B", False),
        ]

    def test_bars_share_one_scale(self) -> None:
        small, big = price_groups(self.offers())
        assert big.rows[0].on_demand_width == BAR_WIDTH
        assert big.rows[0].spot_width == BAR_WIDTH // 2
        assert small.rows[0].spot_width == 0

    def test_a_link_fills_the_form_in(self) -> None:
        assert price_groups(self.offers())[0].rows[0].rent == (
            "/instances/new?productName=small&region=D&billingMode=onDemand"
        )

    def test_an_empty_shop_is_an_empty_list(self) -> None:
        assert price_groups([]) == []


class TestTheFormOfAWish:
    def form(self, **said: str) -> Form:
        return Form([*said.items()])

    def test_what_is_left_empty_is_not_said(self) -> None:
        body = launch_body_of(
            form_values(self.form(name=" a ", productName="p", templateId="1", gpuNum="", webhookUrl=""))
        )
        assert body == {"name": "a", "productName": "p", "templateId": "1"}

    def test_every_field_arrives_as_the_api_wants_it(self) -> None:
        pairs = [
            ("name", "a"),
            ("gpuNum", "2"),
            ("maxHourlyPrice", "$1.50"),
            ("regions", "A"),
            ("regions", "B"),
            ("waitMinutes", "5"),
            ("labels", "team=x, run = 7"),
            ("healthPort", "8888"),
            ("healthPath", "/ok"),
            ("ports", "8000/http, 22/tcp"),
            ("envs", "A=1\n B = x=y \n\nC"),
            ("secrets", "HF_TOKEN=hf"),
        ]
        assert launch_body_of(form_values(Form(pairs))) == {
            "name": "a",
            "gpuNum": 2,
            "maxHourlyPrice": "1.50",
            "regions": ["A", "B"],
            "waitForCapacity": {"seconds": 300},
            "labels": {"team": "x", "run": "7"},
            "healthCheck": {"targetPort": 8888, "path": "/ok"},
            "ports": ["8000/http", "22/tcp"],
            "envs": {"A": "1", "B": " x=y ", "C": "", "HF_TOKEN": {"secret": "hf"}},
        }

    def test_what_is_no_number_is_left_for_the_api_to_refuse(self) -> None:
        body = launch_body_of(form_values(self.form(gpuNum="two", waitMinutes="long")))
        assert (body["gpuNum"], body["waitForCapacity"]) == ("two", {"seconds": "long"})

    def test_a_fresh_form_has_defaults_and_what_a_link_says(self) -> None:
        fresh = default_values({"productName": "p", "evil": "x", "envs": "A=1"}, "A")
        assert (fresh.fields["gpuNum"], fresh.fields["productName"], fresh.regions) == ("1", "p", ("A",))
        assert "evil" not in fresh.fields
        assert fresh.fields["envs"] == ""

    def test_problems_find_their_field(self) -> None:
        problems = [FieldProblem("healthCheck.path", "X", "bad path"), FieldProblem("name", "X", "no")]
        assert problems_by_field(problems) == {"healthPort": "bad path", "name": "no"}
        assert problems_by_field([FieldProblem("gpuNum", "X", "gpuNum: too many")]) == {"gpuNum": "too many"}


class TestConnection:
    @pytest.mark.parametrize(
        "address", ["javascript:alert(1)", "data:text/html,x", "//x", "http://", "http://[", ""]
    )
    def test_only_web_addresses_become_links(self, address: str) -> None:
        assert link(address) == ""
        assert link("https://example.com/x") == "https://example.com/x"

    def test_every_way_that_the_cloud_names_is_shown(self) -> None:
        it = a_running_instance(
            connection=ConnectionDetails("ssh -p 1 root@h", "javascript:x", "https://t.example")
        )
        assert [(way.title, way.href) for way in connection_options(it)] == [
            ("SSH", ""),
            ("Jupyter", ""),
            ("Terminal", "https://t.example"),
        ]


class TestNavigation:
    def test_it_shows_what_the_key_may_open(self) -> None:
        assert navigation(None, "/") == []
        assert [it.title for it in navigation(Scope.WRITE, "/instances/x") if it.is_here] == ["Instances"]
        assert "Keys" not in [it.title for it in navigation(Scope.WRITE, "/")]
        assert "Keys" in [it.title for it in navigation(Scope.ADMIN, "/")]

    def test_browsers_listen_to_every_kind_of_event(self) -> None:
        types = event_types().split()
        for kind in ("instance.ready", "instance.planned", "instance.deleting", "instance.orphan_detected"):
            assert kind in types


def test_the_api_reference_has_every_operation() -> None:
    document: dict[str, Any] = {
        "paths": {
            "/x/{id}": {
                "post": {
                    "tags": ["x"],
                    "description": "Do it.",
                    "security": [{"apiKey": ["write"]}],
                    "parameters": [
                        {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
                    ],
                    "requestBody": {
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/B"}}}
                    },
                    "responses": {"200": {"description": "Done"}},
                }
            }
        },
        "components": {
            "schemas": {
                "B": {
                    "properties": {
                        "mode": {"enum": ["a", "b"]},
                        "n": {"type": "integer", "minimum": 1, "maximum": 8, "default": 1},
                        "t": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                        "l": {"type": "array", "items": {"type": "string"}},
                    },
                    "required": ["mode"],
                }
            }
        },
    }
    (chapter,) = chapters_of(document)
    (operation,) = chapter.operations
    assert (operation.method, operation.path, operation.scope) == ("POST", "/x/{id}", "write")
    assert [(it.name, it.kind, it.is_required) for it in operation.body] == [
        ("mode", "a | b", True),
        ("n", "integer, 1–8, default 1", False),
        ("t", "string", False),
        ("l", "list of string", False),
    ]
    assert "curl -X POST" in operation.example


class TestCommands:
    SHOWN = re.compile(r"(?:\"|<code>|^)gpuherd ([a-z]+)(?: ([a-z]+))?", re.MULTILINE)

    def test_every_command_that_a_page_shows_exists(self) -> None:
        text = "\n".join(path.read_text() for path in TEMPLATES.glob("*.html"))
        text += "\n".join(["", *(way.text for it in Status for way in commands_for(an_instance(status=it)))])
        shown = set(self.SHOWN.findall(text))
        assert len(shown) > 8
        context = click.Context(CLI)
        for verb, word in shown:
            command = CLI.get_command(context, verb)
            assert command is not None, verb
            subcommands = getattr(command, "commands", {})
            assert not word or not subcommands or word in subcommands, (verb, word)
