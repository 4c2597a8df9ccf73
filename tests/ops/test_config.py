"""`gpuherd config`: everything that is in force, and nothing that is secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.bootstrap.rules_from_settings import SETTING_MEANINGS, redact_password
from gpuherd.ops.config import Setting, configuration
from gpuherd.settings import SETTING_NAMES, SettingsInvalid

CANARY = "canary-that-must-not-be-printed"
SECRETS = {
    "NOVITA_API_KEY": CANARY,
    "WEBHOOK_SECRET": CANARY,
    "GPUHERD_WEBHOOK_SECRET_PREVIOUS": CANARY,
    "GPUHERD_ADMIN_KEY": CANARY,
    "GPUHERD_API_KEY": CANARY,
    "GPUHERD_SECRETS_KEY": f"{CANARY}-of-32-characters-at-least-0",
    "GPUHERD_SECRETS_KEY_PREVIOUS": f"{CANARY}-of-32-characters-at-least-1",
    "GPUHERD_SMTP_URL": f"smtps://me:{CANARY}@mail.example",
    "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {CANARY}",
    "GPUHERD_DATABASE_URL": f"postgresql://me:{CANARY}@db.example/herd?sslpassword={CANARY}",
}


def shown(tmp_path: Path, **environ: str) -> dict[str, Setting]:
    return {it.name: it for it in configuration(environ, tmp_path).settings}


def test_every_setting_is_explained() -> None:
    assert set(SETTING_MEANINGS) == SETTING_NAMES


def test_every_setting_is_shown_with_its_source(tmp_path: Path) -> None:
    (tmp_path / "gpuherd.toml").write_text("gpuherd_port = 9\nrequest_timeout = 5\n")
    settings = shown(tmp_path, GPUHERD_PORT="10")
    assert set(settings) == SETTING_NAMES
    assert (settings["GPUHERD_PORT"].value, settings["GPUHERD_PORT"].source) == ("10", "environment")
    assert (settings["REQUEST_TIMEOUT"].value, settings["REQUEST_TIMEOUT"].source) == ("5", "gpuherd.toml")
    assert (settings["GPUHERD_HOST"].value, settings["GPUHERD_HOST"].source) == ("127.0.0.1", "default")
    assert settings["GPUHERD_URL"].value == "http://127.0.0.1:10"
    assert settings["REGION_PRIORITY"].value == "AS-SGP-02,CN-HK-01,AS-IN-01"
    assert settings["NOVITA_API_KEY"].value is None


def test_networks_are_shown_as_they_are_written(tmp_path: Path) -> None:
    networks = "10.0.0.0/8,fd00:1::/32"
    assert (
        shown(tmp_path, GPUHERD_ALLOW_PRIVATE_TARGETS=networks)["GPUHERD_ALLOW_PRIVATE_TARGETS"].value
        == networks
    )


def test_no_secret_is_shown(tmp_path: Path) -> None:
    settings = shown(tmp_path, **SECRETS, GPUHERD_SMTP_FROM="gpuherd@example.com")
    assert CANARY not in repr(settings)
    hidden = {name for name, it in settings.items() if it.is_secret}
    assert hidden == set(SECRETS) - {"GPUHERD_DATABASE_URL"}
    assert {settings[name].value for name in hidden} == {"***"}
    assert settings["GPUHERD_DATABASE_URL"].value == (
        "postgresql+psycopg://me:***@db.example/herd?sslpassword=***"
    )


@given(password=st.text(st.characters(codec="utf-8"), min_size=1))
def test_a_password_is_blotted_out_however_it_is_written(password: str) -> None:
    password = f"7Qz{password}7Qz"
    assert "7Qz" not in redact_password(f"postgresql://me:{password}@host/db")


@pytest.mark.parametrize(
    "url", ["postgresql://me@host/db", "sqlite:////tmp/x.db", "postgresql:///db?host=/run"]
)
def test_an_address_without_a_password_stays_as_it_is(url: str) -> None:
    assert redact_password(url) == url


def test_unusable_settings_are_all_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid) as invalid:
        configuration({"GPUHERD_PORT": "x", "LOG_LEVEL": "y"}, tmp_path)
    assert len(invalid.value.problems) == 2


def run(tmp_path: Path, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if name not in SETTING_NAMES}
    return subprocess.run(
        [sys.executable, "-m", "gpuherd", *argv],
        env={**plain, "GPUHERD_DATA_DIR": str(tmp_path / "data"), **environ},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_command_gives_json_to_a_pipe(tmp_path: Path) -> None:
    done = run(tmp_path, "config", **SECRETS, GPUHERD_SMTP_FROM="gpuherd@example.com")
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert CANARY not in done.stdout + done.stderr
    assert {it["name"] for it in told["settings"]} == SETTING_NAMES
    assert (told["file"], told["fileExists"]) == (str(tmp_path / "gpuherd.toml"), False)


def test_the_command_ends_with_78_where_settings_are_unusable(tmp_path: Path) -> None:
    done = run(tmp_path, "config", GPUHERD_PORT="x", LOG_LEVEL="y")
    assert done.returncode == 78
    assert "GPUHERD_PORT" in done.stderr
    assert "LOG_LEVEL" in done.stderr
