"""Tables that fit into any terminal."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from gpuherd.entrypoints.cli.render.tables import Column, fitting, pairs, table

Row = tuple[str, str, str]
COLUMNS: list[Column[Row]] = [
    Column("NAME", lambda r: r[0], 0, shrinks_to=8),
    Column("STATUS", lambda r: r[1], 1),
    Column("ID", lambda r: r[2], 2, right=True),
]
CELLS = st.text(alphabet=st.sampled_from("ab 训🙂é\x1b\u202e[]"), max_size=60)


def drawn(renderable: object, width: int) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, markup=False).print(renderable)
    return file.getvalue().splitlines()


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=5), st.integers(4, 200))
def test_no_line_is_wider_than_the_terminal_and_each_row_is_one_line(rows: list[Row], width: int) -> None:
    lines = drawn(table(COLUMNS, rows, width), width)
    assert len(lines) == 1 + len(rows)
    assert all(cell_len(line) <= width for line in lines)


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=5), st.integers(1, 200))
def test_the_most_important_column_stays_and_columns_go_in_their_order(rows: list[Row], width: int) -> None:
    kept = [column.expendable for column, _ in fitting(COLUMNS, rows, width)]
    assert kept == list(range(len(kept)))
    assert kept


def test_everything_is_shown_where_there_is_room() -> None:
    assert drawn(table(COLUMNS, [("train-1", "ready", "inst_1")], 80), 80) == [
        "NAME     STATUS      ID",
        "train-1  ready   inst_1",
    ]


def test_a_long_name_is_cut_before_a_column_is_dropped() -> None:
    header, row = drawn(table(COLUMNS, [("n" * 50, "ready", "inst_1")], 26), 26)
    assert header.split() == ["NAME", "STATUS", "ID"]
    assert row == "nnnnnnnnn…  ready   inst_1"


def test_the_least_important_column_goes_first() -> None:
    header, _ = drawn(table(COLUMNS, [("train-1", "ready", "inst_1")], 20), 20)
    assert header.split() == ["NAME", "STATUS"]


def test_a_column_that_wraps_loses_no_word() -> None:
    columns: list[Column[Row]] = [
        Column("REGION", lambda r: r[0]),
        Column("WHY", lambda r: r[1], shrinks_to=10, wraps=True),
    ]
    lines = drawn(table(columns, [("HK", "costs more than you allow", "")], 22), 22)
    assert " ".join(" ".join(lines[1:]).split()) == "HK costs more than you allow"
    assert all(cell_len(line) <= 22 for line in lines)


def test_pairs_keep_long_values_beside_their_names() -> None:
    lines = drawn(pairs([("name", "x" * 30), ("id", "1")]), 20)
    assert lines[0].startswith("name  x")
    assert lines[1].startswith("      x")
    assert "".join(line[6:].strip() for line in lines[:-1]) == "x" * 30
