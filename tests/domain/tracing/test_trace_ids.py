"""The ids of traces: the 128 bits of the subject's own id, for every process the same."""

from __future__ import annotations

import random

import pytest

from gpuherd.adapters.system_clock import SystemClock
from gpuherd.domain.trace_spans import root_span_id_of, trace_id_of
from gpuherd.ports.clock_port import Ids, ulid_number


def test_a_trace_has_the_bits_of_the_id() -> None:
    made = Ids(SystemClock(), random.Random(1))
    first, second = made.new("inst_"), made.new("inst_")
    assert trace_id_of(first) == ulid_number(first[5:]) and trace_id_of(first) >> 80 > 0
    assert trace_id_of(first) < trace_id_of(second) < 1 << 128
    assert root_span_id_of(first) != root_span_id_of(second) and 0 < root_span_id_of(first) < 1 << 64


def test_all_bits_are_there() -> None:
    assert ulid_number("7" + "z" * 25) == (1 << 128) - 1
    assert ulid_number("0" * 25 + "h") == 0x11


def test_ids_of_another_form_have_a_trace_too(subtests: pytest.Subtests) -> None:
    for strange in ["8" + "z" * 25, "i" * 26, "0" * 26, "x", "", "inst_é" + "0" * 25]:
        with subtests.test(strange=strange):
            assert 0 < trace_id_of(strange) < 1 << 128
