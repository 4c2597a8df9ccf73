"""A log that cannot be written disturbs nobody, and goes on when it can be."""

from __future__ import annotations

import errno
import io

from gpuherd.adapters.logs import BufferedLines

# Longer than any test: nothing comes out by itself.
NEVER_S = 3600.0


class SmallDisk(io.StringIO):
    """Has room for nothing, for a while."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_whoever_warns_on_a_full_disk_goes_on_and_later_warnings_are_written() -> None:
    disk = SmallDisk()
    lines = BufferedLines(disk, NEVER_S)
    lines.warning("lost")
    disk.full = False
    lines.warning("written")
    assert disk.getvalue() == "written\n"


def test_a_stream_that_was_closed_disturbs_nobody_either() -> None:
    disk = SmallDisk()
    lines = BufferedLines(disk, NEVER_S)
    disk.close()
    lines.warning("to nobody")
