"""The base of all models: reads JSON into frozen dataclasses by their annotations; whatever else is in it
stays in `raw`.

A field without a default must be there. One with a default keeps it when the server says nothing, or
something odd: a newer server must not break an older client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from types import UnionType
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

from gpuherd.client.errors import UnexpectedReply

Read = Callable[[Any], Any]
# Of each field: its name, its key in the JSON, how to read it, and whether it must be there.
FieldPlan = tuple[tuple[str, str, Read, bool], ...]


@dataclass(frozen=True, kw_only=True)
class ApiModel:
    """A model of the API; `raw` is all that the server said."""

    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, raw: object) -> Self:
        """Read what the server said, or raise `UnexpectedReply`."""
        if not isinstance(raw, dict):
            raise UnexpectedReply(f"the server's answer has no {cls.__name__} where one belongs")
        values: dict[str, Any] = {}
        # mypy asks an instance, and not its class, for a hash.
        field_plan = _field_plan(cls)  # type: ignore[arg-type]
        for name, key, read, is_required in field_plan:
            try:
                values[name] = read(raw.get(key))
            except (ValueError, UnexpectedReply):
                if is_required:
                    words = f"the server's answer has no usable {key!r} in its {cls.__name__}"
                    raise UnexpectedReply(f"{words}; is it a gpuherd, and as new as this client?") from None
        return cls(raw=raw, **values)


@cache
def _field_plan(kind: type[ApiModel]) -> FieldPlan:
    hints = get_type_hints(kind)
    return tuple(
        (
            it.name,
            it.metadata.get("key") or camel(it.name),
            _reader(hints[it.name]),
            it.default is MISSING and it.default_factory is MISSING,
        )
        for it in fields(kind)
        if it.name != "raw"
    )


def camel(name: str) -> str:
    """Return a name as the API writes it."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _reader(kind: Any) -> Read:
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (inner,) = (_reader(it) for it in args if it is not type(None))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        each = _reader(args[0])
        return lambda value: tuple(each(it) for it in _list(value))
    if origin is Mapping:
        worth = _reader(args[1])
        return lambda value: {str(key): worth(it) for key, it in _dict(value).items()}
    assert issubclass(kind, ApiModel), f"there is no reader for {kind}"
    model: type[ApiModel] = kind
    return model.of


def _typed(*kinds: type) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError
        return value

    return read


_list, _dict, _number = _typed(list), _typed(dict), _typed(int, float)


def _text(value: Any) -> str:
    return str(_typed(str, int)(value))


def _money(value: Any) -> Decimal:
    try:
        amount = Decimal(str(_typed(str, int, float)(value)))
    except InvalidOperation:
        raise ValueError from None
    if not amount.is_finite():
        raise ValueError
    return amount


def _moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(_typed(str)(value))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


_SIMPLE: dict[Any, Read] = {
    Any: lambda value: value,
    str: _text,
    bool: _typed(bool),
    int: _typed(int),
    float: lambda value: float(_number(value)),
    Decimal: _money,
    datetime: _moment,
}
