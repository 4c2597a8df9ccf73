"""The base of the contract: frozen dataclasses that are written as JSON objects and read from them.

Constructors and writers are compiled per class when they are first needed, into plain functions without a
loop: an instance has some forty fields and is written at every change. Loading this costs next to nothing,
which the command line needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from datetime import datetime
from decimal import Decimal
from functools import update_wrapper
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from gpuherd.contract.codec.values import (
    LeftOut,
    OneOf,
    WithOffset,
    camel,
    decimal_text,
    iso_time,
    read_money,
    read_time,
)

T = TypeVar("T")
Read = Callable[[Any], Any]
Json = dict[str, Any]

# In the metadata of a field: its key on the wire where that is not its name.
KEY = "key"


def on_wire_as(key: str) -> Any:
    """Declare a field whose key is not its own name."""
    return field(metadata={KEY: key})


def hidden() -> Any:
    """Declare a field that may hold a secret: it stays out of every repr."""
    return field(repr=False)


class Undecodable(ValueError):
    """This JSON is not what it should be."""


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    field_specifiers=(field, on_wire_as, hidden),
)
class Model:
    """One JSON object. Subclasses are dataclasses; without the fields that `needs` names it means nothing."""

    needs: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, needs: tuple[str, ...] | None = None) -> None:
        if needs is not None:
            cls.needs = needs
        dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
        if not TYPE_CHECKING:
            cls.__init__ = _construct_first

    @property
    def raw(self) -> Mapping[str, Any]:
        """All that the server said, of what was read from a reply."""
        raw: Mapping[str, Any] = self.__dict__.get("_raw", {})
        return raw

    @classmethod
    def of(cls, raw: object) -> Self:
        """Read a JSON object, or raise `Undecodable`.

        What is new is in `raw` only. What is missing or odd reads as the field's default, as empty or as
        None, so that a client and a server of different age understand each other.
        """
        if not isinstance(raw, dict):
            raise Undecodable(f"the server's answer has no {cls.__name__} where one belongs")
        values: Json = {}
        for it in readers(cls):
            try:
                values[it.name] = it.read(raw.get(it.key))
            except ValueError:
                if it.is_needed:
                    words = f"the server's answer has no usable {it.key!r} in its {cls.__name__}"
                    raise Undecodable(f"{words}; is it a gpuherd, and as new as this client?") from None
                values[it.name] = it.fallback()
        made = object.__new__(cls)
        made.__dict__.update(values, _raw=raw)
        return made

    @classmethod
    def extending(cls, base: Model, **more: object) -> Self:
        """Return what `base` says, and more: together exactly the fields of this class, else `TypeError`."""
        if (extension := (cls, type(base), *more)) not in _checked_extensions:
            _check_extension(cls, type(base), more)
            _checked_extensions.add(extension)
        made = object.__new__(cls)
        made.__dict__.update(base.__dict__)
        made.__dict__.update(more)
        return made

    def _values(self) -> tuple[Any, ...]:
        return tuple(self.__dict__.get(it.name) for it in fields_of(type(self)))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        # Of what is hashable: lists and objects of free form differ by the rest, or not at all.
        return hash((type(self), *(it for it in self._values() if not isinstance(it, dict | list))))

    def __repr__(self) -> str:
        shown = (f"{it.name}={self.__dict__.get(it.name)!r}" for it in fields_of(type(self)) if it.repr)
        return f"{type(self).__name__}({', '.join(shown)})"

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


# Which fields are given is the same at every call of one place, so it is compared once.
_checked_extensions: set[tuple[object, ...]] = set()


def _check_extension(kind: type[Model], base: type[Model], more: Mapping[str, object]) -> None:
    # What begins with a line is not on the wire.
    given = {it.name for it in fields_of(base)} | {name for name in more if not name.startswith("_")}
    wanted = {it.name: it.default is MISSING for it in fields_of(kind)}
    if unknown := given - wanted.keys():
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    if missing := {name for name, is_needed in wanted.items() if is_needed} - given:
        raise TypeError(f"{kind.__name__} needs {', '.join(sorted(missing))}")


def fields_of(kind: type[Model]) -> tuple[Field[Any], ...]:
    """Return the fields in the order of the wire."""
    return fields(kind)  # type: ignore[arg-type]


def key_of(it: Field[Any]) -> str:
    """Return the field's key on the wire."""
    return str(it.metadata.get(KEY) or camel(it.name))


def is_left_out_if_none(hint: Any) -> bool:
    """Tell whether a field of this type is missing on the wire while it is None."""
    return any(isinstance(it, LeftOut) for it in parts_of(hint)[1])


def once_a_class(make: Callable[[type[Model]], T]) -> Callable[[type[Model]], T]:
    """Keep what is made of a class."""
    made: dict[Any, T] = {}

    def known_or_made(kind: type[Model]) -> T:
        found = made.get(kind)
        if found is None:
            found = made[kind] = make(kind)
        return found

    return update_wrapper(known_or_made, make)


@once_a_class
def hints_of(kind: type[Model]) -> Mapping[str, Any]:
    """Return the types of the fields."""
    return get_type_hints(kind, include_extras=True)


def parts_of(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Return the type without its notes and without None, the notes, and whether it may be None."""
    notes: tuple[Any, ...] = ()
    nullable = False
    while True:
        if get_origin(hint) is Annotated:
            hint, *more = get_args(hint)
            notes += tuple(more)
        elif get_origin(hint) in (Union, UnionType) and type(None) in get_args(hint):
            nullable = True
            rest = tuple(it for it in get_args(hint) if it is not type(None))
            hint = rest[0] if len(rest) == 1 else Union[rest]  # noqa: UP007
        else:
            return hint, notes, nullable


def choices_of(hint: Any) -> tuple[type[Model], ...]:
    """Return the models that one field may hold, if it may hold several."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else ()


# Constructors: `self.__dict__` is written directly, several times faster than a frozen dataclass does it.


def _construct_first(self: Any, **values: Any) -> None:
    cls = type(self)
    cls.__init__ = _constructor(cls)
    cls.__init__(self, **values)


def _constructor(kind: type[Model]) -> Callable[..., None]:
    parameters, lines = [], ["values = self.__dict__"]
    defaults: Json = {}
    for it in fields_of(kind):
        has_default = it.default is not MISSING
        parameters.append(f"{it.name}=defaults[{it.name!r}]" if has_default else it.name)
        if has_default:
            defaults[it.name] = it.default
        lines.append(f"values[{it.name!r}] = {it.name}")
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    return _compiled("__init__", signature, lines, {"defaults": defaults})


def _compiled(name: str, signature: str, lines: list[str], names: Json) -> Callable[..., Any]:
    source = f"def {name}({signature}):\n" + "\n".join(f"    {line}" for line in lines)
    made: Json = {}
    # Made of the names of our own fields, as the standard library's dataclasses are.
    exec(source, names, made)  # noqa: S102
    return made[name]  # type: ignore[no-any-return]


# Writing


def encode(it: Model) -> Json:
    """Return the JSON object."""
    return encoder(type(it))(it)


@once_a_class
def encoder(kind: type[Model]) -> Callable[[Any], Json]:
    """Return the function that writes this class."""
    names: Json = {"encode": encode, "iso_time": iso_time, "decimal_text": decimal_text}
    parts = []
    for it in fields_of(kind):
        hint, value = hints_of(kind)[it.name], f"it.{it.name}"
        entry = f"{key_of(it)!r}: {_written(value, hint, names)}"
        parts.append(f"**({{}} if {value} is None else {{{entry}}})" if is_left_out_if_none(hint) else entry)
    return _compiled("write", "it", [f"return {{{', '.join(parts)}}}"], names)


def _written(value: str, hint: Any, names: Json) -> str:
    """Return the expression for one value."""
    hint, notes, nullable = parts_of(hint)
    if nullable:
        inner = _written("v", hint if not notes else Annotated[(hint, *notes)], names)
        return value if inner == "v" else f"None if (v := {value}) is None else {inner}"
    if hint is datetime:
        return (
            f"{value}.isoformat()"
            if any(isinstance(it, WithOffset) for it in notes)
            else f"iso_time({value})"
        )
    if hint is Decimal:
        return f"decimal_text({value})"
    if get_origin(hint) is tuple:
        each = _written("one", get_args(hint)[0], names)
        return f"list({value})" if each == "one" else f"[{each} for one in {value}]"
    if get_origin(hint) is Mapping:
        worth = _written("one", get_args(hint)[1], names)
        return value if worth == "one" else f"{{key: {worth} for key, one in {value}.items()}}"
    if choices_of(hint):
        return f"encode({value})"
    if isinstance(hint, type) and issubclass(hint, Model):
        name = f"write_{hint.__name__}"
        names[name] = encoder(hint)
        return f"{name}({value})"
    return value


# Reading


@dataclass(frozen=True)
class FieldReader:
    """How one field is read."""

    name: str
    key: str
    read: Read
    is_needed: bool
    fallback: Callable[[], Any]


@once_a_class
def readers(kind: type[Model]) -> tuple[FieldReader, ...]:
    """Return how each field is read."""
    hints = hints_of(kind)
    return tuple(
        FieldReader(
            it.name, key_of(it), _reader(hints[it.name]), it.name in kind.needs, _fallback(it, hints[it.name])
        )
        for it in fields_of(kind)
    )


def _fallback(it: Field[Any], hint: Any) -> Callable[[], Any]:
    if it.default is not MISSING:
        default = it.default
        return lambda: default
    hint, _, nullable = parts_of(hint)
    empty = {tuple: tuple, Mapping: dict}.get(get_origin(hint) or hint) or (bool if hint is bool else None)
    return (lambda: None) if nullable or empty is None else empty


def _reader(hint: Any) -> Read:
    hint, _, nullable = parts_of(hint)
    if nullable:
        inner = _reader(hint)
        return lambda value: None if value is None else inner(value)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if get_origin(hint) is tuple:
        each = _reader(get_args(hint)[0])
        return lambda value: tuple(each(it) for it in _list(value))
    if get_origin(hint) is Mapping:
        worth = _reader(get_args(hint)[1])
        return lambda value: {str(key): worth(it) for key, it in _dict(value).items()}
    if choices := choices_of(hint):
        return lambda value: _fitting(choices, _dict(value)).of(value)
    assert issubclass(hint, Model), f"there is no reader for {hint}"
    model: type[Model] = hint
    return model.of


def _fitting(choices: tuple[type[Model], ...], raw: Json) -> type[Model]:
    """Return the model that is meant: by the word that tells them apart, else the first with all its keys."""
    key, models = discriminator(choices)
    if key:
        return models.get(raw.get(key, ""), choices[0])
    return next((it for it in choices if raw.keys() >= {key_of(one) for one in fields_of(it)}), choices[0])


def discriminator(choices: tuple[type[Model], ...]) -> tuple[str, Mapping[str, type[Model]]]:
    """Return the key whose word tells these models apart, and which word means which."""
    for it in fields_of(choices[0]):
        said = [words_of(hints_of(kind).get(it.name)) for kind in choices]
        models = {word: kind for kind, words in zip(choices, said, strict=True) for word in words}
        if all(said) and len(models) == sum(map(len, said)):
            return key_of(it), models
    return "", {}


def words_of(hint: Any) -> tuple[str, ...]:
    """Return the words that a field may be."""
    _, notes, _ = parts_of(hint)
    return next((it.words for it in notes if isinstance(it, OneOf)), ())


def _typed(*kinds: type) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError
        return value

    return read


_list, _dict, _number = _typed(list), _typed(dict), _typed(int, float)


def _text(value: Any) -> str:
    return str(_typed(str, int)(value))


_SIMPLE: dict[Any, Read] = {
    Any: lambda value: value,
    type(None): lambda _: None,
    str: _text,
    bool: _typed(bool),
    int: _typed(int),
    float: lambda value: float(_number(value)),
    Decimal: read_money,
    datetime: read_time,
}
