"""`gpuherd doctor`: runs all checks at the same time and judges the results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from pathlib import Path

from gpuherd.domain.secret import Secret
from gpuherd.ops.doctor_local_checks import (
    DIRECTORY,
    check_files,
    check_port,
    check_postgres,
    check_sqlite,
)
from gpuherd.ops.doctor_local_checks import (
    NAME as PORT,
)
from gpuherd.ops.doctor_local_checks import (
    NAME_database as DATABASE,
)
from gpuherd.ops.doctor_results import (
    PROBLEM,
    CheckResult,
    judge_settings,
    judge_unknown_variables,
)
from gpuherd.ops.doctor_server_checks import (
    NAME as SERVER,
)
from gpuherd.ops.doctor_server_checks import (
    NAME_cloud as CLOUD,
)
from gpuherd.ops.doctor_server_checks import (
    check_cloud,
    check_server,
    is_remote,
)
from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.concurrency import run_in_daemon_thread
from gpuherd.settings import (
    FILE_NAME,
    Settings,
    SettingsInvalid,
    SettingSource,
    load_settings,
    sources_of,
    unknown_variables_in,
)

CHECK_LIMIT_S = 15.0


def examine(
    clock: Clock,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
    limit_s: float = CHECK_LIMIT_S,
) -> list[CheckResult]:
    """Run all checks. If the settings are unusable, only the settings are checked."""
    sources = sources_of(environ, directory)
    unknown_variables = judge_unknown_variables(unknown_variables_in(environ))
    try:
        settings = load_settings(environ, directory)
    except SettingsInvalid as invalid:
        return [*judge_settings(invalid.problems, sources), *unknown_variables]
    file = (directory or Path.cwd()) / FILE_NAME
    checks = _checks(settings, sources, file, clock)
    findings = asyncio.run(_all(checks, limit_s))
    return [*judge_settings([], sources), *unknown_variables, *findings]


def _checks(
    settings: Settings, sources: Mapping[str, SettingSource], file: Path, clock: Clock
) -> Mapping[str, Awaitable[list[CheckResult]]]:
    server = {SERVER: check_server(settings, clock)}
    if is_remote(settings):
        return server
    path = settings.sqlite_path
    has_secrets = _has_secrets(settings, sources)
    return {
        CLOUD: check_cloud(settings, clock),
        DIRECTORY: run_in_daemon_thread(
            lambda: check_files(settings.data_dir, file, file_has_secrets=has_secrets)
        ),
        DATABASE: check_postgres(settings.database) if path is None else check_sqlite(path),
        PORT: check_port(settings, clock),
        **server,
    }


def _has_secrets(settings: Settings, sources: Mapping[str, SettingSource]) -> bool:
    """Return True if the file holds secrets."""
    return any(
        sources[str(it.validation_alias)] is SettingSource.FILE
        and isinstance(getattr(settings, name), Secret)
        for name, it in Settings.model_fields.items()
    )


async def _all(checks: Mapping[str, Awaitable[list[CheckResult]]], limit_s: float) -> list[CheckResult]:
    found = await asyncio.gather(*(_bounded(name, check, limit_s) for name, check in checks.items()))
    return [finding for findings in found for finding in findings]


async def _bounded(name: str, check: Awaitable[list[CheckResult]], limit_s: float) -> list[CheckResult]:
    try:
        async with asyncio.timeout(limit_s):
            return await check
    except TimeoutError:
        advice = "something between here and there hangs; look at disk and network, then try again"
        return [CheckResult(name, PROBLEM, f"not answered within {limit_s:g} s", advice)]
    except Exception as error:  # a failing check must not hide the results of the others
        words = f"it could not be checked ({type(error).__name__})"
        return [CheckResult(name, PROBLEM, words, "this is a defect in gpuherd doctor; please report it")]
