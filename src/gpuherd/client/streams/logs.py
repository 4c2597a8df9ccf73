"""Reading a log, without a network: bytes as the machine wrote them, as they come."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from gpuherd.client.streams.streaming import Emit, OpenStream, ReadChunk, StreamEffects
from gpuherd.client.transport.wire import api_error, get

LogSource = Literal["instance", "system"]
LogEffects = StreamEffects[bytes]
# Longer than the server looks for what there is now.
SILENCE_MAX_S = 60.0
# A program may be silent for long; nothing tells that apart from a network that has died.
FOLLOWED_SILENCE_MAX_S = 24 * 3600.0


def read_log(path: str, source: LogSource, follow: bool) -> LogEffects:
    """Tell what a log says until it ends; after a break nothing is asked again: it would begin at the top."""
    question = get(path, source=source, follow=follow)
    silence_s = FOLLOWED_SILENCE_MAX_S if follow else SILENCE_MAX_S
    begun = yield OpenStream(replace(question, timeout_s=silence_s))
    if begun.status != 200:
        raise api_error(question, begun, begun.json or {})
    while chunk := (yield ReadChunk()):
        yield Emit(chunk)
