"""API methods that are written once and called in two ways: the answer itself, or something to await.

`@api_method` takes a method that yields its effects. On a `SyncResource` it is a function that returns the
result; on an `AsyncResource`, a coroutine function. `@paginated` does the same for lists that come page by
page. Type checkers see both, with all parameters."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from gpuherd.client.effects import Effects
from gpuherd.client.paging import AsyncPaged, Paged, PageReader
from gpuherd.client.retrying import RetryingCaller
from gpuherd.client.streams.streaming import StreamEffects

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class Executor(Protocol):
    """Performs effects in the calling thread."""

    def run(self, effects: Effects[R]) -> R: ...

    def follow(self, effects: StreamEffects[R]) -> Generator[R, None, None]: ...


class AsyncExecutor(Protocol):
    """Performs effects in the running task."""

    async def run(self, effects: Effects[R]) -> R: ...

    def follow(self, effects: StreamEffects[R]) -> AsyncGenerator[R, None]: ...


class Resource:
    """One subject of the API, with its methods."""

    _caller: RetryingCaller


class SyncResource(Resource):
    """A resource whose methods return when they are done."""

    def __init__(self, caller: RetryingCaller, executor: Executor) -> None:
        self._caller = caller
        self._executor = executor


class AsyncResource(Resource):
    """A resource whose methods are awaited."""

    def __init__(self, caller: RetryingCaller, executor: AsyncExecutor) -> None:
        self._caller = caller
        self._executor = executor


class api_method(Generic[P, T]):
    """Makes a method of a generator of effects."""

    def __init__(self, effects: Callable[Concatenate[Any, P], Effects[T]]) -> None:
        self._effects = effects
        update_wrapper(self, effects)  # type: ignore[arg-type]

    @overload
    def __get__(self, it: None, owner: type) -> Self: ...
    @overload
    def __get__(self, it: SyncResource, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, it: AsyncResource, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, it: SyncResource | AsyncResource | None, owner: type) -> Any:
        if it is None:
            return self
        executor = it._executor

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return executor.run(self._effects(it, *args, **kwargs))

        return update_wrapper(call, self._effects)


class following(Generic[P, T]):
    """Makes an iterator of what describes a stream; it is opened with the first `next`."""

    def __init__(self, effects: Callable[Concatenate[Any, P], StreamEffects[T]]) -> None:
        self._effects = effects
        update_wrapper(self, effects)  # type: ignore[arg-type]

    @overload
    def __get__(self, it: None, owner: type) -> Self: ...
    @overload
    def __get__(self, it: SyncResource, owner: type) -> Callable[P, Generator[T, None, None]]: ...
    @overload
    def __get__(self, it: AsyncResource, owner: type) -> Callable[P, AsyncGenerator[T, None]]: ...
    def __get__(self, it: SyncResource | AsyncResource | None, owner: type) -> Any:
        if it is None:
            return self
        executor = it._executor

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return executor.follow(self._effects(it, *args, **kwargs))

        return update_wrapper(call, self._effects)


class paginated(Generic[P, T]):
    """Makes a list that comes in pages of what describes its pages."""

    def __init__(self, reader: Callable[Concatenate[Any, P], PageReader[T]]) -> None:
        self._reader = reader
        update_wrapper(self, reader)  # type: ignore[arg-type]

    @overload
    def __get__(self, it: None, owner: type) -> Self: ...
    @overload
    def __get__(self, it: SyncResource, owner: type) -> Callable[P, Paged[T]]: ...
    @overload
    def __get__(self, it: AsyncResource, owner: type) -> Callable[P, AsyncPaged[T]]: ...
    def __get__(self, it: SyncResource | AsyncResource | None, owner: type) -> Any:
        if it is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            reader, caller = self._reader(it, *args, **kwargs), it._caller
            if isinstance(it, SyncResource):
                run = it._executor.run
                return Paged(lambda cursor: run(reader.page(caller, cursor)))
            run_async = it._executor.run
            return AsyncPaged(lambda cursor: run_async(reader.page(caller, cursor)))

        return update_wrapper(call, self._reader)
