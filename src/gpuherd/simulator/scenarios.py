"""Named scenarios: lists of faults that together make a particular bad day."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gpuherd.simulator.calls import ApiEndpoint
from gpuherd.simulator.faults.fault import Fault
from gpuherd.simulator.faults.fault import FaultKind as Kind
from gpuherd.simulator.money.tariff import HOUR_S
from gpuherd.simulator.money.weather import CALM, Weather
from gpuherd.simulator.world.market import set_weather
from gpuherd.simulator.world.state import WorldState


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story that fits on one line, and the faults that tell it."""

    description: str
    faults: tuple[Fault, ...] = ()
    weather: Weather = CALM


def _scenario(description: str, *faults: Fault) -> Scenario:
    return Scenario(description, faults)


CREATE = (ApiEndpoint.CREATE,)

SCENARIOS: Mapping[str, Scenario] = MappingProxyType(
    {
        "calm": _scenario("everything works"),
        "sold-out": _scenario("no GPU anywhere", Fault(Kind.SOLD_OUT)),
        "sold-out-hk": _scenario("no GPU in Hong Kong", Fault(Kind.SOLD_OUT, cluster="cn-hongkong-1")),
        "sold-out-for-a-minute": _scenario("no GPU anywhere for 60 s", Fault(Kind.SOLD_OUT, for_s=60)),
        "stale-stock": _scenario(
            "the catalogue shows stock, but the first 2 creates are refused", Fault(Kind.SOLD_OUT, count=2)
        ),
        "lost-reply": _scenario(
            "every create works, and no reply to one ever arrives", Fault(Kind.LOST_REPLY_AFTER_COMMIT)
        ),
        "lost-reply-before": _scenario(
            "the connection of the first create dies before anything happens",
            Fault(Kind.LOST_REPLY_BEFORE_COMMIT, count=1),
        ),
        "late-commit": _scenario(
            "the reply to the first create is lost, and its machine appears 20 s later",
            Fault(Kind.LATE_COMMIT, count=1, seconds=20),
        ),
        "error-after-commit": _scenario(
            "the first create rents a machine and answers 502",
            Fault(Kind.ERROR_AFTER_COMMIT, count=1, status=502),
        ),
        "garbage": _scenario(
            "the first replies to creates are cut, empty, a page, or an id that is a number",
            *(
                Fault(Kind.GARBAGE, count=1, style=style)
                for style in ("cut", "html", "empty_id", "number_id", "broken_json", "wrong_type")
            ),
        ),
        "flaky": _scenario(
            "one call in five goes wrong, one way or another",
            Fault(Kind.REFUSE, probability=0.04, status=500),
            Fault(Kind.OUTAGE, probability=0.03, style="html"),
            Fault(Kind.OUTAGE, probability=0.03, style="cut"),
            Fault(Kind.RATE_LIMIT, probability=0.03, retry_after="1"),
            Fault(Kind.HANG, probability=0.02, seconds=3),
            Fault(Kind.LOST_REPLY_BEFORE_COMMIT, probability=0.08),
            Fault(Kind.LOST_REPLY_AFTER_COMMIT, probability=0.08),
            Fault(Kind.ERROR_AFTER_COMMIT, probability=0.04),
            Fault(Kind.GET_404_GLITCH, probability=0.02),
        ),
        "slow": _scenario("every answer takes 2 s", Fault(Kind.HANG, seconds=2)),
        "slow-pull": _scenario("images take six times as long to pull", Fault(Kind.SLOW_PULL, factor=6)),
        "endless-pull": _scenario("images are pulled for ever", Fault(Kind.SLOW_PULL)),
        "pull-failure": _scenario("images cannot be pulled", Fault(Kind.PULL_FAILURE)),
        "rate-limited": _scenario(
            "every second call is answered with 429 and Retry-After: 2",
            Fault(Kind.RATE_LIMIT, probability=0.5, retry_after="2"),
        ),
        "list-lag": _scenario("new machines are listed 20 s late", Fault(Kind.LIST_LAG, seconds=20)),
        "list-very-late": _scenario("new machines are listed 100 s late", Fault(Kind.LIST_LAG, seconds=100)),
        "empty-list": _scenario(
            "for 60 s the list is empty, with status 200", Fault(Kind.EMPTY_LIST, for_s=60)
        ),
        "partial-list": _scenario(
            "pages are missing, doubled or short, and totals are wrong",
            *(
                Fault(Kind.PARTIAL_LIST, probability=0.1, style=style)
                for style in ("missing_page", "duplicated_page", "wrong_total", "short_page")
            ),
        ),
        "outage": _scenario(
            "after 10 s everything answers 503 for 60 s", Fault(Kind.OUTAGE, after_s=10, for_s=60)
        ),
        "cut-off": _scenario(
            "after 10 s every connection is cut for 60 s",
            Fault(Kind.OUTAGE, after_s=10, for_s=60, style="cut"),
        ),
        "reclaim": _scenario(
            "spot machines get their notice after 30 s and are gone 30 s later",
            Fault(Kind.RECLAIM, seconds=30, notice_s=30),
        ),
        "flapping": _scenario(
            "running machines are shown as starting or with unknown words at times",
            Fault(Kind.STATUS_FLAP, probability=0.3),
            Fault(Kind.UNKNOWN_STATUS, probability=0.1),
        ),
        "lost-name": _scenario("names are cut to 32 characters", Fault(Kind.DROP_NAME)),
        "start-went-through": _scenario(
            "starts work and answer that they did not", Fault(Kind.START_WENT_THROUGH)
        ),
        "app-down": _scenario("machines run, their programs never answer", Fault(Kind.APP_DOWN)),
        "app-error-page": _scenario(
            "programs answer 200 with a page that says 502", Fault(Kind.APP_ERROR_PAGE)
        ),
        "no-balance": _scenario(
            "the account has no money for creates",
            Fault(
                Kind.REFUSE,
                endpoints=CREATE,
                status=400,
                reason="BALANCE_NOT_ENOUGH",
                message="the balance is not enough",
            ),
        ),
        "spot-market": Scenario(
            "spot prices move by up to a fifth, products sell out for an hour, machines are taken back",
            weather=Weather(
                price_range=0.2, in_stock_s=6 * HOUR_S, out_of_stock_s=HOUR_S, reclaim_mean_s=6 * HOUR_S
            ),
        ),
        "price-follows": Scenario(
            "spot prices move every minute, and running machines pay today's price",
            weather=Weather(price_range=0.5, walk_every_s=60, price_follows=True),
        ),
        "metrics-zero": _scenario("every machine looks idle", Fault(Kind.WRONG_METRICS)),
        "metrics-gap": _scenario(
            "half of the samples of the metrics are missing", Fault(Kind.WRONG_METRICS, style="gap")
        ),
        "wrong-bill": _scenario(
            "the bill charges a tenth more than was agreed", Fault(Kind.WRONG_BILL, factor=1.1)
        ),
        "quoted-login": _scenario(
            "creates are refused, and the refusal quotes the registry password",
            Fault(
                Kind.REFUSE,
                endpoints=CREATE,
                status=400,
                reason="IMAGE_AUTH_INVALID",
                message="the image cannot be pulled",
                style="quotes_login",
            ),
        ),
        "key-revoked": _scenario(
            "the API key is refused",
            Fault(Kind.REFUSE, status=401, reason="UNAUTHORIZED", message="invalid api key"),
        ),
        "throttled-once": _scenario(
            "one call is answered with 429, without a Retry-After", Fault(Kind.RATE_LIMIT, count=1)
        ),
    }
)


def scenario_names() -> dict[str, str]:
    """Return every scenario with its description."""
    return {name: scenario.description for name, scenario in SCENARIOS.items()}


def apply_scenario(world: WorldState, name: str) -> None:
    """Replace all faults and the weather by those of a scenario."""
    if name not in SCENARIOS:
        raise ValueError(f"there is no scenario {name!r}; there are {', '.join(SCENARIOS)}")
    world.faults.replace(SCENARIOS[name].faults)
    set_weather(world, SCENARIOS[name].weather)
    world.scenario = name
