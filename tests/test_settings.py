"""Settings: the seeds' defaults, every problem at once, and no secret in any message."""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest

from gpuherd.settings import (
    SETTING_NAMES,
    Settings,
    SettingsInvalid,
    SettingSource,
    load_settings,
    sources_of,
    unknown_variables_in,
)

EXAMPLE = Path(__file__).parent.parent / "gpuherd.toml.example"
CANARY = "canary-that-must-not-be-printed"


def load(tmp_path: Path, **environ: str) -> Settings:
    return load_settings(environ, tmp_path)


def problems_of(tmp_path: Path, **environ: str) -> list[str]:
    with pytest.raises(SettingsInvalid) as invalid:
        load(tmp_path, **environ)
    return invalid.value.problems


def test_the_defaults_are_those_of_the_seeds(tmp_path: Path) -> None:
    it = load(tmp_path)
    assert it.novita_api_base_url == "https://api.novita.ai"
    assert it.default_region == "CN-HK-01"
    assert it.region_priority == ("AS-SGP-02", "CN-HK-01", "AS-IN-01")
    assert it.instance_poll_interval_s == 30
    assert it.max_retry_attempts == 3
    assert it.max_concurrent_jobs == 10
    assert it.request_timeout_s == 30
    assert (it.host, it.port) == ("127.0.0.1", 8080)
    assert it.instance_max_wait_s == 1200
    assert it.fast_poll_interval_s == 2
    assert it.create_settle_s == 180
    assert (it.disk_price_usd, it.free_disk_gb) == (Decimal("0.005"), 60)
    assert (it.breaker_threshold, it.breaker_recovery_s) == (10, 60)
    assert (it.watch_budget_per_minute, it.novita_rate_limit_per_minute) == (60, 300)
    assert it.allow_private_targets.allow == ()
    assert it.database == f"sqlite:///{it.data_dir}/gpuherd.db"


def test_a_missing_key_is_one_problem_among_the_others_where_the_cloud_is_needed(tmp_path: Path) -> None:
    bad = {"GPUHERD_PORT": "x", "LOG_LEVEL": "loud", "NOVITA_API_KEY": " "}
    with pytest.raises(SettingsInvalid) as invalid:
        load_settings(bad, tmp_path, needs_cloud=True)
    names = ("NOVITA_API_KEY", "GPUHERD_PORT", "LOG_LEVEL")
    assert len(invalid.value.problems) == len(names)
    assert all(any(name in it for it in invalid.value.problems) for name in names)
    assert not any("NOVITA_API_KEY" in it for it in problems_of(tmp_path, **bad))


def test_the_example_names_every_setting_with_its_default(tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    offered = re.sub(r"^# (?=[a-z_]+ = )", "", text, flags=re.MULTILINE)
    assert {name.upper() for name in tomllib.loads(offered)} == SETTING_NAMES
    (tmp_path / "gpuherd.toml").write_text(text)
    assert load(tmp_path) == load(tmp_path / "nowhere")
    # With the comments taken away, whatever is not a placeholder must be the default.
    plain = [line for line in offered.splitlines() if "..." not in line and "path/to" not in line]
    (tmp_path / "gpuherd.toml").write_text("\n".join(plain))
    shown, default = load(tmp_path).model_dump(), load(tmp_path / "nowhere").model_dump()
    assert shown.pop("url") == "http://127.0.0.1:8080"
    assert default.pop("url") is None
    assert shown == default


@pytest.mark.proves("F37")
def test_all_problems_are_reported_at_once_and_no_value_is_shown(tmp_path: Path) -> None:
    found = problems_of(
        tmp_path,
        GPUHERD_PORT=CANARY,
        MAX_CONCURRENT_JOBS="0",
        INSTANCE_POLL_INTERVAL="never",
        GPUHERD_DATABASE_URL=f"mysql://user:{CANARY}@host/db",
        GPUHERD_ALLOW_PRIVATE_TARGETS="not-a-cidr",
        GPUHERD_ADMIN_KEY="short",
        WEBHOOK_SECRET="whsec_" + CANARY,
        NOVITA_API_BASE_URL=f"ftp://{CANARY}/",
        LOG_LEVEL="loud",
        GPUHERD_SMTP_URL=f"smtp+plain://me:{CANARY}@mail.example",
        GPUHERD_SMTP_FROM=f"{CANARY}@[127.0.0.1]",
    )
    named = {problem.split(":")[0] for problem in found}
    assert named == {
        "GPUHERD_PORT",
        "MAX_CONCURRENT_JOBS",
        "INSTANCE_POLL_INTERVAL",
        "GPUHERD_DATABASE_URL",
        "GPUHERD_ALLOW_PRIVATE_TARGETS",
        "GPUHERD_ADMIN_KEY",
        "WEBHOOK_SECRET",
        "NOVITA_API_BASE_URL",
        "LOG_LEVEL",
        "GPUHERD_SMTP_URL",
        "GPUHERD_SMTP_FROM",
    }
    assert CANARY not in "\n".join(found)


def test_what_does_not_fit_together_is_told_all_at_once_and_with_what_makes_no_sense_by_itself(
    tmp_path: Path,
) -> None:
    unfit = {
        "GPUHERD_FAST_POLL_INTERVAL": "60",
        "GPUHERD_WEBHOOK_SIGNING": "common",
        "GPUHERD_WEBHOOK_SECRET_PREVIOUS": "long enough",
        "GPUHERD_SECRETS_KEY_PREVIOUS": "x" * 32,
        "GPUHERD_SMTP_FROM": "gpuherd@example.com",
    }
    found = problems_of(tmp_path, **unfit)
    assert len(found) == len(unfit)
    assert all(any(name in problem for problem in found) for name in unfit)
    with_a_port = problems_of(tmp_path, **unfit, GPUHERD_PORT="99999")
    assert with_a_port[0].startswith("GPUHERD_PORT:")
    assert with_a_port[1:] == found


def test_whether_settings_fit_together_is_not_judged_where_one_of_them_makes_no_sense(tmp_path: Path) -> None:
    found = problems_of(tmp_path, GPUHERD_WEBHOOK_SIGNING="common", WEBHOOK_SECRET="short")
    assert [problem.split(":")[0] for problem in found] == ["WEBHOOK_SECRET"]


@pytest.mark.parametrize(
    "environ",
    [
        {"GPUHERD_PORT": "65536"},
        {"GPUHERD_PORT": "-1"},
        {"GPUHERD_PORT": "80.5"},
        {"MAX_RETRY_ATTEMPTS": "0"},
        {"REQUEST_TIMEOUT": "0"},
        {"REQUEST_TIMEOUT": "nan"},
        {"GPUHERD_CREATE_SETTLE": "-1"},
        {"GPUHERD_HOST": ""},
        {"GPUHERD_COLLECT": "everything"},
        {"GPUHERD_URL": "localhost:8080"},
        {"GPUHERD_URL": "http://user:password@host"},
        {"GPUHERD_DATABASE_URL": "no url"},
        {"GPUHERD_DATABASE_URL": "redis://localhost"},
        {"GPUHERD_DATABASE_CONNECTIONS": "0"},
        {"GPUHERD_DATABASE_CONNECTIONS": "51"},
        {"GPUHERD_FAST_POLL_INTERVAL": "60"},
        {"WEBHOOK_SECRET": "short"},
        {"WEBHOOK_SECRET": "whsec_AAAA"},
        {"WEBHOOK_SECRET": "long enough", "GPUHERD_WEBHOOK_SECRET_PREVIOUS": "short"},
        {"GPUHERD_WEBHOOK_SECRET_PREVIOUS": "long enough, but nothing takes its place"},
        {"GPUHERD_SMTP_URL": "smtps://mail.example.com"},
        {"GPUHERD_SMTP_FROM": "gpuherd@example.com"},
        {"GPUHERD_BREAKER_THRESHOLD": "many"},
        {"NOVITA_RATE_LIMIT": "-5"},
    ],
    ids=str,
)
def test_nonsense_is_refused(tmp_path: Path, environ: dict[str, str]) -> None:
    assert len(problems_of(tmp_path, **environ)) == 1


@pytest.mark.parametrize("name", ["GPUHERD_DEFAULT_LEASE", "GPUHERD_DELETE_STOPPED_AFTER"])
def test_an_end_for_everybody_is_none_or_one_that_a_create_may_ask_for(tmp_path: Path, name: str) -> None:
    for seconds in ("0", "10", "7776000"):
        load(tmp_path, **{name: seconds})
    for seconds in ("-1", "5", "9", "7776001"):
        assert problems_of(tmp_path, **{name: seconds}) == [f"{name}: must be 0 for none, or 10 to 7776000 s"]


def test_a_file_with_a_misspelt_setting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gpuherd.toml").write_text("novita_api_kye = 'sk_x'\nlog_level = 'debug'\n")
    assert problems_of(tmp_path) == ["gpuherd.toml: there is no setting NOVITA_API_KYE"]


def test_a_file_that_cannot_be_read_is_one_problem_among_others(tmp_path: Path) -> None:
    (tmp_path / "gpuherd.toml").write_text(f"key = {CANARY}")
    found = problems_of(tmp_path, GPUHERD_PORT="x")
    assert len(found) == 2
    assert CANARY not in "\n".join(found)


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "gpuherd.toml").write_text("gpuherd_port = 1111\nregion_priority = ['EU-DE-01']\n")
    it = load(tmp_path, GPUHERD_PORT="2222")
    assert it.port == 2222
    assert it.region_priority == ("EU-DE-01",)


def test_secrets_do_not_show(tmp_path: Path) -> None:
    it = load(
        tmp_path,
        NOVITA_API_KEY=CANARY,
        GPUHERD_ADMIN_KEY=CANARY,
        WEBHOOK_SECRET=CANARY,
        GPUHERD_WEBHOOK_SECRET_PREVIOUS=CANARY,
        GPUHERD_API_KEY=CANARY,
    )
    assert CANARY not in repr(it)
    assert CANARY not in str(it)
    assert it.novita_api_key is not None
    assert it.novita_api_key.reveal() == CANARY


def test_an_empty_key_is_no_key(tmp_path: Path) -> None:
    assert load(tmp_path, NOVITA_API_KEY="  ").novita_api_key is None


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:p@host:5432/db", "postgres://u:p@host/db", "postgresql:///db?host=/run/postgresql"],
)
def test_any_libpq_url_is_understood(tmp_path: Path, url: str) -> None:
    assert load(tmp_path, GPUHERD_DATABASE_URL=url).database.startswith("postgresql+psycopg://")


def test_each_setting_says_where_its_value_comes_from(tmp_path: Path) -> None:
    (tmp_path / "gpuherd.toml").write_text('gpuherd_port = 9\nlog_level = "nonsense"\n')
    sources = sources_of({"GPUHERD_PORT": "10", "PATH": "/bin"}, tmp_path)
    assert set(sources) == SETTING_NAMES
    assert sources["GPUHERD_PORT"] is SettingSource.ENVIRONMENT
    assert sources["LOG_LEVEL"] is SettingSource.FILE
    assert sources["GPUHERD_HOST"] is SettingSource.DEFAULT


def test_variables_that_only_look_like_settings_are_found() -> None:
    environ = {
        "GPUHERD_PROT": "1",
        "NOVITA_KEY": "2",
        "GPUHERD_PORT": "3",
        "_GPUHERD_COMPLETE": "4",
        "HOME": "5",
    }
    assert unknown_variables_in(environ) == ["GPUHERD_PROT", "NOVITA_KEY"]


@pytest.mark.parametrize("said", [CANARY, f"a b={CANARY}", f"token={CANARY}%0d%0aHost:x"])
def test_headers_for_traces_that_are_none_are_refused_and_never_told(tmp_path: Path, said: str) -> None:
    (problem,) = problems_of(tmp_path, OTEL_EXPORTER_OTLP_HEADERS=said)
    assert problem.startswith("OTEL_EXPORTER_OTLP_HEADERS") and CANARY not in problem
    good = load(tmp_path, OTEL_EXPORTER_OTLP_HEADERS=f"token={CANARY}")
    assert good.otlp_headers is not None and CANARY not in repr(good)
