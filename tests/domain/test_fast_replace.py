"""Our copy and the standard library's are the same."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from gpuherd.domain.fast_replace import replace
from gpuherd.domain.instance.instance import Status
from tests.support.builders import a_running_instance


def test_a_copy_is_what_the_standard_library_would_make() -> None:
    it = a_running_instance(1)
    changes: dict[str, Any] = {"status": Status.EXITED, "deadline": it.deadline + timedelta(hours=1)}
    ours, theirs = replace(it, **changes), dataclasses.replace(it, **changes)
    assert ours == theirs
    assert type(ours) is type(theirs)
    assert vars(ours) == vars(theirs)


def test_the_original_stays_as_it_is() -> None:
    it = a_running_instance(1)
    before = dict(vars(it))
    replace(it, name="other")
    assert vars(it) == before


def test_a_copy_is_as_frozen_as_the_original() -> None:
    copy = replace(a_running_instance(1), name="other")
    with pytest.raises(dataclasses.FrozenInstanceError):
        copy.name = "changed"  # type: ignore[misc]


def test_a_misspelt_field_is_refused() -> None:
    with pytest.raises(TypeError, match="has no staus"):
        replace(a_running_instance(1), staus=Status.EXITED)  # type: ignore[call-arg]


@dataclass(frozen=True)
class Doubled:
    one: int
    two: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "two", self.one * 2)


@dataclass(frozen=True, slots=True)
class Slotted:
    one: int
    two: int = 2


def test_what_has_something_to_do_at_birth_is_born_anew() -> None:
    assert replace(Doubled(1), one=3).two == 6


def test_what_keeps_its_fields_elsewhere_is_copied_all_the_same() -> None:
    assert replace(Slotted(1), one=3) == Slotted(3, 2)
