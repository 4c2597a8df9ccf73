"""Our constructor and the standard library's make the same things."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest

from gpuherd.domain.fast_init import fast_init


@dataclass(frozen=True)
class Plain:
    name: str
    count: int = 3
    labels: dict[str, str] = field(default_factory=dict)
    note: str = field(default="", kw_only=True)


@fast_init
@dataclass(frozen=True)
class Fast:
    name: str
    count: int = 3
    labels: dict[str, str] = field(default_factory=dict)
    note: str = field(default="", kw_only=True)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("a",), {}),
        (("a", 4, {"k": "v"}), {"note": "x"}),
        ((), {"name": "a", "labels": {}, "count": 0}),
    ],
)
def test_the_fields_are_those_that_the_standard_library_would_set(
    words: tuple[Any, ...], named: dict[str, Any]
) -> None:
    assert vars(Fast(*words, **named)) == vars(Plain(*words, **named))
    assert list(vars(Fast(*words, **named))) == list(vars(Plain(*words, **named)))


@pytest.mark.parametrize(
    ("words", "named"),
    [((), {}), (("a",), {"nmae": "b"}), (("a",), {"name": "b"}), (("a", 1, {}, "positional"), {})],
)
def test_what_the_standard_library_refuses_is_refused(words: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Plain(*words, **named)
    with pytest.raises(TypeError):
        Fast(*words, **named)


def test_parameters_have_the_same_names_and_kinds() -> None:
    ours, theirs = (inspect.signature(it).parameters.values() for it in (Fast, Plain))
    assert [(it.name, it.kind) for it in ours] == [(it.name, it.kind) for it in theirs]


def test_no_two_share_what_a_factory_makes() -> None:
    assert Fast("a").labels is not Fast("b").labels


def test_it_is_as_frozen_as_before() -> None:
    with pytest.raises(FrozenInstanceError):
        Fast("a").name = "b"  # type: ignore[misc]


def test_what_needs_more_than_its_fields_is_refused() -> None:
    @dataclass(frozen=True)
    class Checked:
        name: str

        def __post_init__(self) -> None:
            assert self.name

    @dataclass(frozen=True, slots=True)
    class Slotted:
        name: str

    @dataclass(frozen=True)
    class Derived:
        name: str
        upper: str = field(init=False, default="")

    for kind in (Checked, Slotted, Derived):
        with pytest.raises(TypeError):
            fast_init(kind)
