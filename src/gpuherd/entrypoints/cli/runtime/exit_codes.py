"""How a command ended, for scripts: one number for each thing that a script would do differently."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What `$?` says after a gpuherd command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    AUTH = 3
    NOT_FOUND = 4
    CONFLICT = 5
    NO_CAPACITY = 6
    BUDGET = 7
    UNREACHABLE = 8
    DIFFERS = 9
    CONFIGURATION = 78
    TIMEOUT = 124
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "it worked",
    ExitCode.FAILED: "it failed (for example: the instance failed), or you said no",
    ExitCode.USAGE: "the command or a value in it makes no sense",
    ExitCode.AUTH: "the API key is missing, unknown or may not do this",
    ExitCode.NOT_FOUND: "there is no such thing",
    ExitCode.CONFLICT: "it cannot be done in the present state",
    ExitCode.NO_CAPACITY: "no offer that fits is available",
    ExitCode.BUDGET: "a limit of the key, or a budget, forbids it",
    ExitCode.UNREACHABLE: "the gpuherd server cannot be reached",
    ExitCode.DIFFERS: "Novita does otherwise than gpuherd assumes (`doctor --live`)",
    ExitCode.CONFIGURATION: "the configuration is wrong",
    ExitCode.TIMEOUT: "not ready in time; the work goes on",
    ExitCode.INTERRUPTED: "interrupted; the work goes on",
}

# Codes of the API (in a problem, or as an instance's last error) that mean "nothing to rent".
NO_CAPACITY_CODES = frozenset(
    {
        "NO_OPTIMAL_PRODUCT_ANY_REGION",
        "NO_OPTIMAL_PRODUCT",
        "NO_AVAILABLE_PRODUCTS",
        "RESOURCE_CONSTRAINTS",
    }
)

# Ours, for an answer that no gpuherd server gives: GPUHERD_URL leads to somebody else.
UNEXPECTED_REPLY = "UNEXPECTED_REPLY"

# Of a key that holds as many GPUs, or spends as much, as it may; of a budget that holds no more.
BUDGET_CODES = frozenset({"QUOTA_EXCEEDED", "BUDGET_EXHAUSTED"})

_OF_STATUS = {
    400: ExitCode.USAGE,
    401: ExitCode.AUTH,
    403: ExitCode.AUTH,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.CONFLICT,
    413: ExitCode.USAGE,
    # The same Idempotency-Key with another wish.
    422: ExitCode.CONFLICT,
    502: ExitCode.UNREACHABLE,
    503: ExitCode.UNREACHABLE,
    504: ExitCode.UNREACHABLE,
}


def of_problem(code: str, status: int) -> ExitCode:
    """Return how a command ends that met this answer of the API."""
    if code in NO_CAPACITY_CODES:
        return ExitCode.NO_CAPACITY
    if code in BUDGET_CODES:
        return ExitCode.BUDGET
    if code == UNEXPECTED_REPLY and status not in (401, 403):
        # Somebody else's "not found" says nothing about our instances.
        return ExitCode.UNREACHABLE
    return _OF_STATUS.get(status, ExitCode.FAILED)


def explained() -> str:
    """Return the table for `gpuherd --help`."""
    lines = (f"{code.value:>5}  {meaning}" for code, meaning in MEANINGS.items())
    return "\n".join(("Exit codes:", *lines))
