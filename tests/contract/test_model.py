"""A model is written as JSON and read from it; what is new, missing or odd does not break a reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest

from gpuherd.contract.codec.model import Model, Undecodable, encode, hidden, on_wire_as
from gpuherd.contract.codec.values import LeftOutIfNone, OffsetTime, OneOf

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Part(Model):
    """A part."""

    made_at: datetime
    price: Decimal | None


class Cat(Model):
    """One of two."""

    kind: Annotated[str, OneOf(("cat",))]
    lives: int


class Dog(Model):
    """The other."""

    kind: Annotated[str, OneOf(("dog",))]
    bark: str


class Whole(Model, needs=("id",)):
    """Something of everything."""

    id: str
    part: Part
    parts: tuple[Part, ...]
    by_name: Mapping[str, Part]
    words: tuple[str, ...] | None
    seen_at: OffsetTime
    other_name: int = on_wire_as("else")
    note: LeftOutIfNone[str] = None
    pets: tuple[Cat | Dog, ...] = ()
    secret: str = hidden()


class More(Whole):
    """And more."""

    more: bool


PART = Part(made_at=NOON, price=Decimal("0.350"))
WHOLE = Whole(
    id="w",
    part=PART,
    parts=(PART,),
    by_name={"a": PART},
    words=("x",),
    seen_at=NOON,
    other_name=1,
    pets=(Cat(kind="cat", lives=9), Dog(kind="dog", bark="!")),
    secret="canary",
)
PART_JSON = {"madeAt": "2026-05-01T12:00:00.000000Z", "price": "0.35"}
JSON = {
    "id": "w",
    "part": PART_JSON,
    "parts": [PART_JSON],
    "byName": {"a": PART_JSON},
    "words": ["x"],
    "seenAt": "2026-05-01T12:00:00+00:00",
    "else": 1,
    "pets": [{"kind": "cat", "lives": 9}, {"kind": "dog", "bark": "!"}],
    "secret": "canary",
}


def test_names_times_and_money_are_written_by_one_rule_in_the_order_of_the_fields() -> None:
    assert encode(WHOLE) == JSON
    assert list(encode(WHOLE)) == list(JSON)


def test_what_is_written_can_be_read() -> None:
    read = Whole.of(JSON)
    assert read == WHOLE
    assert hash(read) == hash(WHOLE)
    assert read.raw is JSON


def test_what_is_left_out_is_missing_and_what_is_nothing_is_null() -> None:
    told = encode(replace(WHOLE, note="here", words=None))
    assert (told["note"], told["words"]) == ("here", None)
    assert "note" not in encode(WHOLE)


def test_what_extends_another_says_all_of_it_and_more() -> None:
    more = More.extending(WHOLE, more=True)
    assert encode(more) == {**JSON, "more": True}
    assert more != WHOLE
    # Whichever of the two is made first, each has a constructor of its own.
    assert More(**{**vars(WHOLE), "more": False}).more is False


@pytest.mark.parametrize("given", [{}, {"odd": 1}, {"more": True, "odd": 1}])
def test_what_extends_another_takes_exactly_its_fields(given: dict[str, Any]) -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match=r"More (needs more|has no odd)"):
            More.extending(WHOLE, **given)


@pytest.mark.parametrize("odd", [None, "x", {}, [1]])
def test_what_is_missing_or_odd_reads_as_nothing(odd: Any) -> None:
    read = Whole.of({"id": "w", "part": odd, "parts": odd, "byName": odd and 1, "else": odd, "seenAt": odd})
    assert (read.parts, read.by_name, read.note, read.pets) == ((), {}, None, ())
    assert read.other_name is None


@pytest.mark.parametrize("odd", [None, {}, [], True])
def test_without_what_it_needs_it_means_nothing(odd: Any) -> None:
    with pytest.raises(Undecodable, match="'id' in its Whole"):
        Whole.of({**JSON, "id": odd})
    with pytest.raises(Undecodable, match="has no Whole"):
        Whole.of([JSON])


def test_nothing_can_be_changed_and_no_secret_is_in_a_repr() -> None:
    with pytest.raises(FrozenInstanceError):
        WHOLE.id = "other"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del WHOLE.id
    assert "canary" not in repr(WHOLE)


def test_a_field_that_there_is_not_is_refused() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        Part(made_at=NOON, price=None, nonsense=1)  # type: ignore[call-arg]
