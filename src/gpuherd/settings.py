"""Settings: the only module that reads the environment and `gpuherd.toml`.

It reports all problems at once.
"""

from __future__ import annotations

import base64
import os
import tomllib
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from gpuherd.domain.egress_policy import BlockedTarget, EgressPolicy
from gpuherd.domain.instance.lease import LEASE_S, STOPPED_S
from gpuherd.domain.secret import Secret
from gpuherd.domain.trace_spans import otlp_headers
from gpuherd.domain.webhooks.webhook_endpoint import SmtpServer, mail_address

FILE_NAME = "gpuherd.toml"
NO_NOVITA_KEY = (
    "no NOVITA_API_KEY is set. Put your key into the environment or gpuherd.toml, "
    "or try gpuherd without one: gpuherd serve --simulator"
)
DATABASE_FILE = "gpuherd.db"
# Simulated and paid machines never share a database.
SIMULATOR_DATABASE_FILE = "gpuherd-simulator.db"
LOG_LEVELS = ("debug", "info", "warning", "error")


class SettingsInvalid(Exception):
    """The configuration is invalid. The message lists all problems, without values that may be secret."""

    def __init__(self, problems: list[str]):
        super().__init__("; ".join(problems))
        self.problems = problems


def _secret(value: Any) -> Any:
    return Secret(value) if isinstance(value, str) else value


def _no_blank(value: Any) -> Any:
    return None if isinstance(value, str) and not value.strip() else value


def _comma_separated(value: Any) -> Any:
    return tuple(w.strip() for w in value.split(",") if w.strip()) if isinstance(value, str) else value


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise ValueError("must be an http or https address such as https://api.novita.ai")
    return value.rstrip("/")


def _none_or(shortest_s: int, longest_s: int) -> AfterValidator:
    """Accept the same lengths as a create, and 0 for none."""

    def check(value: int) -> int:
        if value and not shortest_s <= value <= longest_s:
            raise ValueError(f"must be 0 for none, or {shortest_s} to {longest_s} s")
        return value

    return AfterValidator(check)


def _policy(value: Any) -> Any:
    return EgressPolicy.parse(value) if isinstance(value, str) else value


def _is_base64_key(text: str) -> bool:
    try:
        return 24 <= len(base64.b64decode(text, validate=True)) <= 64
    except ValueError:
        return False


def _backend(database_url: str) -> str:
    """Return the database kind of a URL, without the driver."""
    scheme, separator, _ = database_url.partition("://")
    return scheme.partition("+")[0].lower() if separator else ""


OptionalSecret = Annotated[Secret | None, BeforeValidator(_secret), BeforeValidator(_no_blank)]
CommaSeparated = Annotated[tuple[str, ...], BeforeValidator(_comma_separated)]
Address = Annotated[str, AfterValidator(_http_url)]


def _named(name: str, default: Any, **limits: Any) -> Any:
    return Field(default=default, validation_alias=name, **limits)


class Settings(BaseModel):
    """All settings. `load_settings` checks that they fit together.

    Times are in seconds.
    """

    model_config = ConfigDict(
        frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True, validate_default=True
    )

    novita_api_key: OptionalSecret = _named("NOVITA_API_KEY", None)
    novita_api_base_url: Address = _named("NOVITA_API_BASE_URL", "https://api.novita.ai")
    default_region: str = _named("DEFAULT_REGION", "CN-HK-01")
    region_priority: CommaSeparated = _named("REGION_PRIORITY", ("AS-SGP-02", "CN-HK-01", "AS-IN-01"))
    instance_poll_interval_s: float = _named("INSTANCE_POLL_INTERVAL", 30.0, ge=0.1, le=3600)
    max_retry_attempts: int = _named("MAX_RETRY_ATTEMPTS", 3, ge=1, le=100)
    max_concurrent_jobs: int = _named("MAX_CONCURRENT_JOBS", 10, ge=1, le=1000)
    request_timeout_s: float = _named("REQUEST_TIMEOUT", 30.0, ge=0.1, le=300)
    webhook_secret: OptionalSecret = _named("WEBHOOK_SECRET", None)
    log_level: str = _named("LOG_LEVEL", "info")

    database_url: str = _named("GPUHERD_DATABASE_URL", "")
    database_connections: int = _named("GPUHERD_DATABASE_CONNECTIONS", 4, ge=1, le=50)
    data_dir: Path = _named("GPUHERD_DATA_DIR", Path("~/.local/share/gpuherd"))
    host: str = _named("GPUHERD_HOST", "127.0.0.1", min_length=1)
    port: int = _named("GPUHERD_PORT", 8080, ge=0, le=65535)
    admin_key: OptionalSecret = _named("GPUHERD_ADMIN_KEY", None)
    api_key: OptionalSecret = _named("GPUHERD_API_KEY", None)
    url: Address | None = _named("GPUHERD_URL", None)
    allow_private_targets: Annotated[EgressPolicy, BeforeValidator(_policy)] = _named(
        "GPUHERD_ALLOW_PRIVATE_TARGETS", EgressPolicy()
    )
    secrets_key: OptionalSecret = _named("GPUHERD_SECRETS_KEY", None)
    secrets_key_previous: OptionalSecret = _named("GPUHERD_SECRETS_KEY_PREVIOUS", None)
    webhook_secret_previous: OptionalSecret = _named("GPUHERD_WEBHOOK_SECRET_PREVIOUS", None)
    webhook_signing: Literal["key", "common"] = _named("GPUHERD_WEBHOOK_SIGNING", "key")
    smtp_url: OptionalSecret = _named("GPUHERD_SMTP_URL", None)
    smtp_from: str = _named("GPUHERD_SMTP_FROM", "")
    instance_max_wait_s: float = _named("GPUHERD_INSTANCE_MAX_WAIT", 1200.0, ge=1, le=86_400)
    default_lease_s: Annotated[int, _none_or(*LEASE_S)] = _named("GPUHERD_DEFAULT_LEASE", 0)
    lease_warning_s: float = _named("GPUHERD_LEASE_WARNING", 600.0, ge=0, le=86_400)
    delete_stopped_after_s: Annotated[int, _none_or(*STOPPED_S)] = _named("GPUHERD_DELETE_STOPPED_AFTER", 0)
    budget_lead_s: float = _named("GPUHERD_BUDGET_LEAD", 120.0, ge=0, le=86_400)
    budget_horizon_s: float = _named("GPUHERD_BUDGET_HORIZON", 900.0, ge=0, le=86_400)
    fast_poll_interval_s: float = _named("GPUHERD_FAST_POLL_INTERVAL", 2.0, ge=0.05, le=300)
    create_settle_s: float = _named("GPUHERD_CREATE_SETTLE", 180.0, ge=0.1, le=3600)
    reclaim_notice_s: float = _named("GPUHERD_RECLAIM_NOTICE", 3600.0, ge=0, le=604_800)
    max_replacements: int = _named("GPUHERD_MAX_REPLACEMENTS", 10, ge=1, le=1000)
    otlp_endpoint: Annotated[Address | None, BeforeValidator(_no_blank)] = _named(
        "GPUHERD_OTLP_ENDPOINT", None
    )
    # The standard name of OpenTelemetry.
    otlp_headers: OptionalSecret = _named("OTEL_EXPORTER_OTLP_HEADERS", None)
    trace_ratio: float = _named("GPUHERD_TRACE_RATIO", 1.0, ge=0, le=1)
    mcp_ask_above_usd: Decimal = _named("GPUHERD_MCP_ASK_ABOVE", Decimal("0.50"), ge=0, le=1_000_000)
    disk_price_usd: Decimal = _named("GPUHERD_DISK_PRICE", Decimal("0.005"), ge=0, le=10)
    free_disk_gb: int = _named("GPUHERD_FREE_DISK", 60, ge=0, le=1_000_000)
    breaker_threshold: int = _named("GPUHERD_BREAKER_THRESHOLD", 10, ge=1, le=10_000)
    breaker_recovery_s: float = _named("GPUHERD_BREAKER_RECOVERY", 60.0, ge=0.05, le=3600)
    watch_budget_per_minute: int = _named("GPUHERD_WATCH_BUDGET", 60, ge=0, le=100_000)
    metrics_budget_per_minute: int = _named("GPUHERD_METRICS_BUDGET", 20, ge=0, le=100_000)
    collect: Literal["delete", "report"] = _named("GPUHERD_COLLECT", "delete")
    on_unknown: Literal["retry", "fail"] = _named("GPUHERD_ON_UNKNOWN", "retry")
    failed_retention_days: int = _named("GPUHERD_FAILED_RETENTION_DAYS", 30, ge=1, le=3650)
    audit_retention_days: int = _named("GPUHERD_AUDIT_RETENTION_DAYS", 400, ge=1, le=36_500)
    reconcile: Literal["daily", "off"] = _named("GPUHERD_RECONCILE", "daily")
    costs_kept_days: int = _named("GPUHERD_COSTS_KEPT", 400, ge=1, le=36_500)
    novita_rate_limit_per_minute: int = _named("NOVITA_RATE_LIMIT", 300, ge=0, le=100_000)

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value.lower() not in LOG_LEVELS:
            raise ValueError(f"must be one of {', '.join(LOG_LEVELS)}")
        return value.lower()

    @field_validator("data_dir")
    @classmethod
    def _expanded(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, value: str) -> str:
        # SQLAlchemy could check more, but loading it would slow down every `gpuherd ls`.
        if value and _backend(value) not in ("sqlite", "postgresql", "postgres"):
            raise ValueError("must be sqlite:///… or postgresql://…")
        return value

    @field_validator("admin_key")
    @classmethod
    def _long_enough(cls, value: Secret | None) -> Secret | None:
        if value is not None and len(value.reveal()) < 16:
            raise ValueError("must have at least 16 characters")
        return value

    @field_validator("secrets_key", "secrets_key_previous")
    @classmethod
    def _strong_enough(cls, value: Secret | None) -> Secret | None:
        # The value is used without key stretching, so it must be long and random.
        if value is not None and len(value.reveal()) < 32:
            raise ValueError("must have at least 32 characters; make one with: openssl rand -base64 32")
        return value

    @field_validator("webhook_secret", "webhook_secret_previous")
    @classmethod
    def _usable_secret(cls, value: Secret | None) -> Secret | None:
        if value is None:
            return None
        text = value.reveal()
        if text.startswith("whsec_") and not _is_base64_key(text.removeprefix("whsec_")):
            raise ValueError("begins with whsec_, so 24 to 64 bytes in base64 must follow")
        if len(text) < 8:
            raise ValueError("must have at least 8 characters (or be whsec_… with base64)")
        return value

    @field_validator("smtp_url")
    @classmethod
    def _usable_mail_server(cls, value: Secret | None) -> Secret | None:
        if value is not None:
            SmtpServer.parse(value)
        return value

    @field_validator("otlp_headers")
    @classmethod
    def _usable_headers(cls, value: Secret | None) -> Secret | None:
        if value is not None:
            otlp_headers(value.reveal())
        return value

    @field_validator("smtp_from")
    @classmethod
    def _plain_mail_address(cls, value: str) -> str:
        try:
            return mail_address(value) if value else value
        except BlockedTarget:
            raise ValueError("must be a plain e-mail address such as gpuherd@example.com") from None

    @property
    def sqlite_path(self) -> Path | None:
        """The file of the database, if it is one."""
        scheme, _, path = self.database.partition(":///")
        return Path(path.partition("?")[0]) if scheme.startswith("sqlite") and path else None

    @property
    def database(self) -> str:
        """The database as an SQLAlchemy URL."""
        if not self.database_url:
            return f"sqlite:///{self.data_dir / DATABASE_FILE}"
        if _backend(self.database_url) == "sqlite":
            return self.database_url
        return f"postgresql+psycopg://{self.database_url.partition('://')[2]}"

    def for_simulator(self) -> Self:
        """The same settings with the simulator's own database, unless one was chosen."""
        if self.database_url:
            return self
        own = f"sqlite:///{self.data_dir / SIMULATOR_DATABASE_FILE}"
        return self.model_copy(update={"database_url": own})

    @property
    def server_url(self) -> str:
        """The server address for the CLI."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.url or f"http://{host}:{self.port}"

    @property
    def instance_max_wait(self) -> timedelta:
        return timedelta(seconds=self.instance_max_wait_s)


# Settings that must fit together: their names, the failing condition, and the message.
_RULES: tuple[tuple[set[str], Callable[[Settings], bool], str], ...] = (
    (
        {"GPUHERD_WEBHOOK_SECRET_PREVIOUS", "WEBHOOK_SECRET"},
        lambda it: bool(it.webhook_secret_previous and not it.webhook_secret),
        "GPUHERD_WEBHOOK_SECRET_PREVIOUS needs a WEBHOOK_SECRET that takes its place",
    ),
    (
        {"GPUHERD_SECRETS_KEY_PREVIOUS", "GPUHERD_SECRETS_KEY"},
        lambda it: bool(it.secrets_key_previous and not it.secrets_key),
        "GPUHERD_SECRETS_KEY_PREVIOUS needs a GPUHERD_SECRETS_KEY that takes its place",
    ),
    (
        {"GPUHERD_WEBHOOK_SIGNING", "WEBHOOK_SECRET"},
        lambda it: it.webhook_signing == "common" and not it.webhook_secret,
        "GPUHERD_WEBHOOK_SIGNING is common, so a WEBHOOK_SECRET must be given",
    ),
    (
        {"GPUHERD_SMTP_URL", "GPUHERD_SMTP_FROM"},
        lambda it: (it.smtp_url is None) != (not it.smtp_from),
        "GPUHERD_SMTP_URL and GPUHERD_SMTP_FROM belong together: give both, or neither",
    ),
    (
        {"GPUHERD_FAST_POLL_INTERVAL", "INSTANCE_POLL_INTERVAL"},
        lambda it: it.fast_poll_interval_s > it.instance_poll_interval_s,
        "GPUHERD_FAST_POLL_INTERVAL must not be longer than INSTANCE_POLL_INTERVAL",
    ),
)

SETTING_NAMES = frozenset(str(info.validation_alias) for info in Settings.model_fields.values())


def load_settings(
    environ: Mapping[str, str] | None = None, directory: Path | None = None, *, needs_cloud: bool = False
) -> Settings:
    """Return the settings. The environment takes precedence over the file.

    With `needs_cloud`, a missing Novita key is one of the problems.
    """
    environ = os.environ if environ is None else environ
    problems: list[str] = []
    values = _read_file((directory or Path.cwd()) / FILE_NAME, problems)
    values |= {name: environ[name] for name in SETTING_NAMES if name in environ}
    if needs_cloud and _no_blank(values.get("NOVITA_API_KEY")) is None:
        problems.append(NO_NOVITA_KEY)
    settings = _judged(values, problems)
    if problems:
        raise SettingsInvalid(problems)
    return settings


def _judged(values: Mapping[str, Any], problems: list[str]) -> Settings:
    """Return the settings. An invalid one gets its default and a problem."""
    wrong: set[str] = set()
    try:
        settings = Settings(**values)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        problems += [_sentence(dict(it)) for it in found]
        wrong = {str(it["loc"][0]) for it in found}
        settings = Settings(**{name: value for name, value in values.items() if name not in wrong})
    problems += [said for names, is_unfit, said in _RULES if wrong.isdisjoint(names) and is_unfit(settings)]
    return settings


class SettingSource(StrEnum):
    """The source of a setting, in order of precedence."""

    ENVIRONMENT = "environment"
    FILE = FILE_NAME
    DEFAULT = "default"


def sources_of(
    environ: Mapping[str, str] | None = None, directory: Path | None = None
) -> dict[str, SettingSource]:
    """Return the source of each setting, also of invalid ones."""
    environ = os.environ if environ is None else environ
    in_file = _read_file((directory or Path.cwd()) / FILE_NAME, [])
    return {
        name: SettingSource.ENVIRONMENT
        if name in environ
        else SettingSource.FILE
        if name in in_file
        else SettingSource.DEFAULT
        for name in sorted(SETTING_NAMES)
    }


def unknown_variables_in(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the variables that look like settings of gpuherd but are unknown."""
    environ = os.environ if environ is None else environ
    ours = ("GPUHERD_", "NOVITA_")
    return sorted(name for name in environ if name.startswith(ours) and name not in SETTING_NAMES)


def _read_file(path: Path, problems: list[str]) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        values = {name.upper(): value for name, value in tomllib.loads(path.read_text()).items()}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problems.append(f"{FILE_NAME}: cannot be read ({type(error).__name__})")
        return {}
    problems += [f"{FILE_NAME}: there is no setting {name}" for name in sorted(set(values) - SETTING_NAMES)]
    return {
        name: ",".join(v) if isinstance(v, list) else v for name, v in values.items() if name in SETTING_NAMES
    }


def _sentence(error: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in error["loc"])
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
