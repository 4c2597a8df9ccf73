"""The log of a boot beside the wait for it: what the cloud pulls, line by line, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gpuherd.client.client_errors import GpuherdError
from gpuherd.client.sync_client import Gpuherd
from gpuherd.entrypoints.cli.render.log_text import LastLine
from gpuherd.entrypoints.cli.render.progress import Watcher

# While there is no machine, or no address of its log.
RETRY_S = 2.0
LINE_CHARS_MAX = 200


@contextmanager
def boot_log(herd: Gpuherd, instance_id: str, watcher: Watcher) -> Iterator[None]:
    """Tell the watcher the last line of the cloud's log, for as long as the block lasts, if it wants it."""
    if not watcher.wants_log:
        yield
        return
    ended = threading.Event()
    # Not waited for: it may stand in a read, and the end of the command ends it.
    threading.Thread(target=_read, args=(herd, instance_id, watcher, ended), daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _read(herd: Gpuherd, instance_id: str, watcher: Watcher, ended: threading.Event) -> None:
    while not ended.is_set():
        last = LastLine(LINE_CHARS_MAX)
        try:
            for chunk in herd.instances.logs(instance_id, source="system", follow=True):
                if ended.is_set():
                    return
                if line := last.feed(chunk):
                    watcher.log_line(line)
        except (GpuherdError, OSError):
            # Whoever waits is told by the wait itself what is wrong.
            pass
        ended.wait(RETRY_S)
