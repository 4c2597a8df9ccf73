"""What all public JSON is made of: the base of replies, money, moments, and the problem document.

A field is one line: its name (camelCase on the wire), its type, and what it means. The order of the fields is
the order on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from functools import cache, cached_property
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, TypeVar, Union, get_args, get_origin

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    TypeAdapter,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

Json = dict[str, Any]
T = TypeVar("T")

CENT, MILLICENT = Decimal("0.01"), Decimal("0.00001")


def iso_time(moment: datetime) -> str:
    """Return a time as ISO 8601 in UTC with microseconds."""
    return moment.astimezone(UTC).isoformat("T", "microseconds").replace("+00:00", "Z")


def iso(moment: datetime | None) -> str | None:
    """Return a time as the API writes it, if there is one."""
    return None if moment is None else iso_time(moment)


def decimal_text(amount: Decimal) -> str:
    """Return an amount as a plain decimal string."""
    return f"{amount.normalize():f}"


def usd(amount: Decimal | None) -> str | None:
    """Return an amount as the API writes it, if there is one."""
    return None if amount is None else decimal_text(amount)


def price_text(amount: Decimal) -> str:
    """Return a price for people, in cents or down to a thousandth of a cent, rounded up.

    The price is rounded up, so that a shown price used as `maxHourlyPrice` is accepted.
    """
    shown = amount.quantize(MILLICENT, ROUND_CEILING)
    cents = shown.quantize(CENT)
    return f"${cents if cents == shown else shown.normalize():,f}"


def one_of(*words: str) -> WithJsonSchema:
    """Name the words that a text may be. Readers accept others too: a newer server may know more words."""
    return WithJsonSchema({"type": "string", "enum": [*words]})


class NeverNull:
    """Mark a field that may be absent, but is never null on the wire."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        schema = handler(core)
        found = [it for it in schema["anyOf"] if it != {"type": "null"}]
        return found[0] if len(found) == 1 else {**schema, "anyOf": found}


def _is_none(value: object) -> bool:
    return value is None


LeftOutIfNone = Annotated[T | None, Field(exclude_if=_is_none), NeverNull()]
Moment = Annotated[
    AwareDatetime,
    PlainSerializer(iso_time, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
# With its offset as +00:00, and with microseconds only where there are some.
OffsetTime = Annotated[
    AwareDatetime,
    PlainSerializer(datetime.isoformat, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Usd = Annotated[
    Decimal,
    PlainSerializer(decimal_text, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "decimal", "pattern": r"^-?\d+(\.\d+)?$"}),
]
# A whole number stays one: 12 is not written as 12.0.
Number = Annotated[int | float, WithJsonSchema({"type": "number"})]
Url = Annotated[str, WithJsonSchema({"type": "string", "format": "uri"})]
Day = Annotated[str, WithJsonSchema({"type": "string", "format": "date"})]


class Undecodable(ValueError):
    """This JSON is not what it should be."""


class ReplyModel(BaseModel):
    """A reply, the body of a webhook, or a part of one. Only what is `LeftOutIfNone` can be absent.

    Without the fields that `needs` names, a reply means nothing to a client.
    """

    needs: ClassVar[tuple[str, ...]] = ()

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        json_schema_serialization_defaults_required=True,
        # The command line and the client import all models and use few of them.
        defer_build=True,
    )

    @classmethod
    def extending(cls, base: ReplyModel, **more: object) -> Self:
        """Return what `base` says, and more."""
        return cls(**{**base.__dict__, **more})

    def __init_subclass__(cls, needs: tuple[str, ...] | None = None, **config: Any) -> None:
        super().__init_subclass__(**config)
        if needs is not None:
            cls.needs = needs

    @classmethod
    def of(cls, raw: object) -> Self:
        """Read the reply of an older or newer server, or raise `Undecodable`.

        New fields are in `raw` only. What is missing or odd reads as its default, as empty or as None.
        """
        if not isinstance(raw, dict):
            raise Undecodable(f"the server's answer has no {cls.__name__} where one belongs")
        values: Json = {}
        for name, field in cls.model_fields.items():
            key = _key(name, field)
            try:
                values[name] = _read(field.annotation, raw.get(key))
            except ValueError:
                if name in cls.needs:
                    words = f"the server's answer has no usable {key!r} in its {cls.__name__}"
                    raise Undecodable(f"{words}; is it a gpuherd, and as new as this client?") from None
                values[name] = _fallback(field)
        made = cls.model_construct(**values)
        made.__dict__["raw"] = raw
        return made

    @cached_property
    def raw(self) -> Mapping[str, Any]:
        """All that the server said, of what was read from a reply; else what this model says."""
        return self.model_dump(mode="json")


def _fallback(field: FieldInfo) -> Any:
    if not field.is_required():
        return field.get_default()
    hint: Any = get_origin(field.annotation) or field.annotation
    empty: dict[Any, Any] = {tuple: (), Mapping: {}, bool: False}
    return empty.get(hint)


def _read(hint: Any, value: Any) -> Any:
    """Return a value as its type, or raise `ValueError`."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    inner = get_args(hint)
    match get_origin(hint):
        case origin if origin in (Union, UnionType):
            if value is None and type(None) in inner:
                return None
            return _read_one_of([it for it in inner if it is not type(None)], value)
        case origin if origin is tuple:
            return tuple(_read(inner[0], it) for it in _LIST.validate_python(value, strict=True))
        case origin if origin is Mapping:
            return {key: _read(inner[1], it) for key, it in _OBJECT.validate_python(value).items()}
    if isinstance(hint, type) and issubclass(hint, ReplyModel):
        return hint.of(value)
    if hint is AwareDatetime:
        moment = _TIME.validate_python(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    if hint is str and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if hint is Decimal and isinstance(value, bool):
        raise ValueError("an amount is a text or a number")
    return _adapter(hint).validate_python(value, strict=hint in (str, int, bool))


def _read_one_of(hints: Sequence[Any], value: Any) -> Any:
    if len(hints) > 1 and isinstance(value, dict):
        fitting = [it for it in hints if value.keys() >= {_key(*each) for each in it.model_fields.items()}]
        return (fitting or hints)[0].of(value)
    if hints == [int, float]:
        return _adapter(int | float).validate_python(value, strict=True)
    return _read(hints[0], value)


def _key(name: str, field: FieldInfo) -> str:
    # A model that is not built yet has no generated aliases.
    return field.serialization_alias or to_camel(name)


_LIST, _OBJECT, _TIME = TypeAdapter(list[Any]), TypeAdapter(dict[str, Any]), TypeAdapter(datetime)


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)


class FieldError(ReplyModel):
    """One thing that is wrong with a request."""

    field: str
    code: str
    message: str


class Refusal(ReplyModel):
    """A problem, before it is the reply to a request."""

    type: Url
    title: str
    status: int
    detail: str = Field(description="for people")
    code: str = Field(description="for programs")
    errors: LeftOutIfNone[tuple[FieldError, ...]] = None
    details: LeftOutIfNone[Mapping[str, Any]] = Field(None, description="it depends on the code")
    retry_after: LeftOutIfNone[int] = Field(None, description="seconds")


class Problem(Refusal):
    """A problem document, RFC 9457."""

    request_id: str
    correlation_id: str
    timestamp: Moment
