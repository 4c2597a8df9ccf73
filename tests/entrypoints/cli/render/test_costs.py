"""What costs money, as tables."""

from __future__ import annotations

import io
from datetime import UTC, datetime

from rich.console import Console

from gpuherd.contract.money_models import Leftover
from gpuherd.entrypoints.cli.render.costs import leftover_table

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_a_leftover_has_the_price_that_the_list_of_instances_says() -> None:
    left = Leftover.of({"kind": "stopped", "id": "inst_1", "name": "trainer", "hourlyPrice": "0.208333333"})
    file = io.StringIO()
    Console(file=file, width=120).print(leftover_table([left], NOW, 120))
    assert "$0.20834/h" in file.getvalue()
