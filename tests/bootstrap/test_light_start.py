"""What a start on a file does without: each of these takes a while to load."""

from __future__ import annotations

import subprocess
import sys

SPARED = (
    "psycopg",
    "asyncpg",
    "alembic",
    "jinja2",
    "gpuherd.ops.config",
    "gpuherd.simulator.server",
)
LOAD = f"""
import sys
import gpuherd.bootstrap.serve, gpuherd.bootstrap.http_server
print(*(name for name in {SPARED!r} if name in sys.modules))
"""


def test_a_server_on_a_file_loads_nothing_that_it_does_not_need() -> None:
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
