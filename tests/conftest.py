"""For every test: a quiet log, and examples that can be repeated."""

from __future__ import annotations

import logging
import os

import structlog
from hypothesis import HealthCheck, settings

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

# How long something takes says nothing on a machine that does other things too.
settings.register_profile("new", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# What lands was tried with the same examples as everywhere; `make chaos` draws new ones.
settings.register_profile("same", settings.get_profile("new"), derandomize=True)
settings.load_profile(os.environ.get("GPUHERD_TEST_EXAMPLES", "same"))
