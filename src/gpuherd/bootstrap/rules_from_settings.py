"""What settings mean for the use cases, and how they are shown."""

from __future__ import annotations

import re

from gpuherd.domain.egress_policy import EgressPolicy
from gpuherd.domain.secret import HIDDEN, Secret
from gpuherd.entrypoints.use_case_access import ShownSetting
from gpuherd.settings import Settings

SETTING_MEANINGS = {
    "NOVITA_API_KEY": "your key at Novita; without one: gpuherd serve --simulator",
    "NOVITA_API_BASE_URL": "where Novita is",
    "NOVITA_RATE_LIMIT": "calls to Novita a minute at most; 0 is no limit",
    "REQUEST_TIMEOUT": "seconds that one call to Novita may take",
    "DEFAULT_REGION": "tried first when a request names no region; empty for none",
    "REGION_PRIORITY": "the regions that are tried next, in this order",
    "INSTANCE_POLL_INTERVAL": "seconds between looks at the cloud while nothing moves",
    "GPUHERD_FAST_POLL_INTERVAL": "seconds between looks at the cloud while something does",
    "GPUHERD_WATCH_BUDGET": "looks at the cloud a minute at most; 0 is no limit",
    "GPUHERD_METRICS_BUDGET": "looks at the use of machines a minute at most; 0 is no limit",
    "GPUHERD_INSTANCE_MAX_WAIT": "seconds in which a new instance must be usable, or its health check begin",
    "GPUHERD_DEFAULT_LEASE": "seconds after which an instance without a lease is stopped; 0 is never",
    "GPUHERD_LEASE_WARNING": "seconds before the end of a lease at which it is announced",
    "GPUHERD_DELETE_STOPPED_AFTER": "seconds after which a stopped instance is deleted; 0 is never",
    "GPUHERD_BUDGET_LEAD": "seconds before the end of a budget at which what is in it is ended",
    "GPUHERD_BUDGET_HORIZON": "seconds for which what is accepted and not billed yet counts in a budget",
    "GPUHERD_CREATE_SETTLE": "seconds for which a create without an answer is looked for",
    "GPUHERD_ON_UNKNOWN": "then: retry with another call, or fail",
    "GPUHERD_COLLECT": "delete surplus machines that gpuherd made, or only report them",
    "GPUHERD_FAILED_RETENTION_DAYS": "days for which a failed instance is kept",
    "GPUHERD_AUDIT_RETENTION_DAYS": "days for which an entry of the audit log is kept",
    "GPUHERD_RECONCILE": "daily: the day before is compared with the provider's bill; off: only when asked",
    "GPUHERD_COSTS_KEPT": "days for which what machines have cost is kept",
    "GPUHERD_RECLAIM_NOTICE": "seconds from a notice to the loss of a spot machine, if no time is said",
    "GPUHERD_MAX_REPLACEMENTS": "how often a lineage is replaced in 24 hours, if a create says nothing else",
    "GPUHERD_OTLP_ENDPOINT": "where traces go (OTLP over HTTP): http://127.0.0.1:4318; empty: no traces",
    "OTEL_EXPORTER_OTLP_HEADERS": "headers that their receiver wants, such as a token: name=value,name=value",
    "GPUHERD_TRACE_RATIO": "the part of all rentals that is traced, 0 to 1",
    "GPUHERD_MCP_ASK_ABOVE": "USD: an agent must ask a person before it rents for more than this in all",
    "GPUHERD_DISK_PRICE": "USD that a GB of disk costs a day, beyond what is free",
    "GPUHERD_FREE_DISK": "GB of each instance's disk that cost nothing",
    "MAX_RETRY_ATTEMPTS": "how often a step that failed is tried",
    "MAX_CONCURRENT_JOBS": "jobs at the same time in this process",
    "GPUHERD_BREAKER_THRESHOLD": "failed calls in a minute that stop further ones",
    "GPUHERD_BREAKER_RECOVERY": "seconds until Novita is tried again after that",
    "WEBHOOK_SECRET": "signs webhooks of the admin key, and of keys without a secret of their own",
    "GPUHERD_WEBHOOK_SECRET_PREVIOUS": "signs too, while receivers still verify with it",
    "GPUHERD_WEBHOOK_SIGNING": "key: each key signs with its own secret; common: WEBHOOK_SECRET signs too",
    "GPUHERD_SMTP_URL": "the mail server for endpoints of the kind email: smtps://user:password@host",
    "GPUHERD_SMTP_FROM": "the address from which this mail comes",
    "GPUHERD_SECRETS_KEY": "seals variables and secrets; without it secrets.key in the data directory does",
    "GPUHERD_SECRETS_KEY_PREVIOUS": "opens what was sealed before the key was changed",
    "GPUHERD_ALLOW_PRIVATE_TARGETS": "private networks that webhooks and probes may reach",
    "GPUHERD_HOST": "the address to serve on",
    "GPUHERD_PORT": "the port to serve on",
    "GPUHERD_ADMIN_KEY": "the first key; without it one is made in the data directory",
    "GPUHERD_DATA_DIR": "where the database and the keys are kept",
    "GPUHERD_DATABASE_URL": "the database: sqlite:///file, or postgresql://user@host/name",
    "GPUHERD_DATABASE_CONNECTIONS": "connections that read; with PostgreSQL a process takes 8 more at most",
    "LOG_LEVEL": "debug, info, warning or error",
    "GPUHERD_URL": "the server that the command line talks to",
    "GPUHERD_API_KEY": "the key that the command line uses",
}


# To the last @: a password that was not escaped may hold others.
_PASSWORD = re.compile(r"(?<=://)(?P<user>[^:/@?]*):.*@", re.DOTALL)


_PASSWORD_IN_QUERY = re.compile(r"(?<=password=)[^&]*", re.IGNORECASE)


def setting_fields() -> dict[str, str]:
    """Return the field of each setting by its name, those that are explained first."""
    fields = {str(info.validation_alias): name for name, info in Settings.model_fields.items()}
    explained = {name: fields[name] for name in SETTING_MEANINGS if name in fields}
    return explained | {name: fields[name] for name in sorted(set(fields) - set(SETTING_MEANINGS))}


def effective_value(settings: Settings, field: str) -> object:
    """Return what holds: where nothing is said, what that means."""
    match field:
        case "database_url":
            return settings.database
        case "url":
            return settings.server_url
        case _:
            return getattr(settings, field)


def shown_value(value: object) -> str | None:
    """Return a value in words that give nothing away."""
    match value:
        case None | "" | ():
            return None
        case Secret():
            return HIDDEN
        case float():
            return f"{value:g}"
        case tuple():
            return ",".join(map(str, value))
        case EgressPolicy():
            return ",".join(map(str, value.allow)) or None
        case _:
            return redact_password(str(value))


def redact_password(text: str) -> str:
    """Return an address whose user stays and whose password is redacted, wherever it stands in it."""
    return _PASSWORD_IN_QUERY.sub(HIDDEN, _PASSWORD.sub(rf"\g<user>:{HIDDEN}@", text))


def shown_settings(settings: Settings) -> tuple[ShownSetting, ...]:
    """Return the name, the value and the meaning of each setting in force."""
    return tuple(
        ShownSetting(
            name, shown_value(effective_value(settings, field)) or "", SETTING_MEANINGS.get(name, "")
        )
        for name, field in setting_fields().items()
    )
