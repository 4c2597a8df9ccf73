"""For every test: a quiet log, and seeds that can be repeated."""

from __future__ import annotations

import logging

import structlog

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
