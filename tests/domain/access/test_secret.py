"""A secret shows itself to nobody who does not ask for it by name."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import pickle
import traceback

import pytest

from gpuherd.domain.secret import Secret

VALUE = "hunter2-hunter2"


@dataclasses.dataclass
class Holder:
    name: str
    secret: Secret


def test_no_way_of_printing_shows_it(subtests: pytest.Subtests) -> None:
    for text in [
        str(Secret(VALUE)),
        repr(Secret(VALUE)),
        f"{Secret(VALUE)}",
        f"{Secret(VALUE)!r:>20}",
        f"{Secret(VALUE):>20}",
        "%s %r" % (Secret(VALUE), Secret(VALUE)),  # noqa: UP031
        repr([Secret(VALUE)]),
        repr(Holder("a", Secret(VALUE))),
        repr(dataclasses.asdict(Holder("a", Secret(VALUE)))),
        json.dumps({"a": Secret(VALUE)}, default=str),
        repr(copy.deepcopy({"a": Secret(VALUE)})),
    ]:
        with subtests.test(text=text):
            assert VALUE not in text
            assert "***" in text


def test_only_reveal_gives_it_out() -> None:
    assert Secret(VALUE).reveal() == VALUE
    assert not hasattr(Secret(VALUE), "__dict__")


def test_json_refuses_it() -> None:
    with pytest.raises(TypeError) as caught:
        json.dumps({"a": Secret(VALUE)})
    assert VALUE not in "".join(traceback.format_exception(caught.value))


def test_pickle_refuses_it(subtests: pytest.Subtests) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with subtests.test(protocol=protocol), pytest.raises(TypeError):
            pickle.dumps(Secret(VALUE), protocol)


def test_its_state_cannot_be_taken_out() -> None:
    with pytest.raises(TypeError):
        Secret(VALUE).__getstate__()


def test_copies_are_the_same_object() -> None:
    secret = Secret(VALUE)
    assert copy.copy(secret) is secret
    assert copy.deepcopy(secret) is secret


def test_equality_is_by_value_and_only_among_secrets() -> None:
    assert Secret(VALUE) == Secret(VALUE)
    assert Secret(VALUE) != Secret(VALUE + "x")
    assert Secret("ü\udc80") == Secret("ü\udc80")
    assert Secret(VALUE) != VALUE


def test_it_is_neither_hashable_nor_changeable() -> None:
    with pytest.raises(TypeError):
        hash(Secret(VALUE))
    with pytest.raises(AttributeError):
        Secret(VALUE)._value = "other"


def test_an_empty_one_is_false() -> None:
    assert not Secret("")
    assert Secret(VALUE)


def test_a_log_line_does_not_show_it(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("test").warning("using %s", Secret(VALUE))
    assert VALUE not in caplog.text
