"""For every test: a quiet log, examples that can be repeated, and an order that leaves nobody waiting."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
from importlib import import_module

import pytest
import structlog
from hypothesis import HealthCheck, settings

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

# Ten thousand tests are a million objects that stay, and every search for garbage goes through them. The
# service itself searches as seldom as this.
gc.set_threshold(20_000, 50, 100)

# How long something takes says nothing on a machine that does other things too.
settings.register_profile("new", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# What lands was tried with the same examples as everywhere, and a second run of them proves nothing new, so
# they are few; `make chaos` draws new ones, and more.
settings.register_profile("same", settings.get_profile("new"), derandomize=True, max_examples=40)
settings.load_profile(os.environ.get("GPUHERD_TEST_EXAMPLES", "same"))

# A shell that starts this in the background, nohup and some CI systems have SIGINT ignored, and every process
# started from here would inherit that: it could not be interrupted, which is what some tests do.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long a test may take before it counts as hung, by its mark; the others have the limit of pyproject.toml.
# Far beyond what they need, because a machine that does ten other things too takes ten times as long.
LIMITS_S = {"long": 1800, "processes": 480}

WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def pytest_collection(session: pytest.Session) -> None:
    """Let each worker load another part of the tests first, when all of them are run.

    A file that has changed, and every file of a fresh clone, is compiled by whoever loads it first: in one
    order for all, the workers would do the same work at the same time.
    """
    if WORKERS == 1 or session.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    root = session.config.rootpath
    files = sorted(root.glob("tests/**/test_*.py"))
    first = len(files) * int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw")) // WORKERS
    for file in files[first:] + files[:first]:
        # What cannot be loaded is told where it is collected.
        with contextlib.suppress(Exception):
            import_module(".".join(file.relative_to(root).with_suffix("").parts))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each worker begin with its share of the slow tests: one that began last would be waited for.

    `--dist worksteal` gives each worker a part of the list, in this order; later, whoever is done takes from
    the ends of the others' parts.
    """
    slow: dict[str, list[pytest.Item]] = {}
    quick: list[pytest.Item] = []
    for it in items:
        limits = [limit_s for mark, limit_s in LIMITS_S.items() if it.get_closest_marker(mark)]
        if limits and not it.get_closest_marker("timeout"):
            it.add_marker(pytest.mark.timeout(max(limits)))
        if it.get_closest_marker("processes") or it.get_closest_marker("together"):
            # File by file: the tests of one often share a server, and those of a browser the browser too.
            shared = it.path.parent if it.path.parent.name == "browser" else it.path
            slow.setdefault(str(shared), []).append(it)
        else:
            quick.append(it)
    shares: list[list[pytest.Item]] = [[] for _ in range(WORKERS)]
    for tests in sorted(slow.values(), key=len, reverse=True):
        min(shares, key=len).extend(tests)
    size = len(items) // WORKERS
    for share in shares:
        rest = max(0, size - len(share))
        share += quick[:rest]
        del quick[:rest]
    shares[-1] += quick
    items[:] = [it for share in shares for it in share]


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
