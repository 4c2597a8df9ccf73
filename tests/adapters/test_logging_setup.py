"""Log lines: no secret gets out, and a stream that cannot be written disturbs no one."""

from __future__ import annotations

import errno
import io

from gpuherd.adapters.logging_setup import LogOutput, Redactor
from gpuherd.domain.secret import Secret


class SmallDisk(io.StringIO):
    """Has no room while it is full."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_a_full_disk_loses_a_line_and_later_lines_are_written() -> None:
    disk = SmallDisk()
    stream = LogOutput(disk)
    stream.write("lost\n")
    disk.full = False
    stream.write("written\n")
    assert disk.getvalue() == "written\n"


def test_a_closed_stream_raises_nothing() -> None:
    closed = io.StringIO()
    closed.close()
    LogOutput(closed).write("to no one\n")
    LogOutput(closed).flush()


def test_a_secret_that_begins_like_another_leaves_no_rest() -> None:
    redactor = Redactor([Secret("secret-key"), Secret("secret-key-of-admin"), None])
    assert redactor.redact("a secret-key-of-admin and a secret-key") == "a *** and a ***"


def test_a_secret_is_found_in_the_form_that_json_gives_it() -> None:
    redactor = Redactor([Secret('quo"te\\back-ü')])
    assert redactor.redact('{"text": "xquo\\"te\\\\back-\\u00fcy"}') == '{"text": "x***y"}'


def test_without_secrets_nothing_is_hidden() -> None:
    assert Redactor([Secret("short"), None]).redact("short words stay") == "short words stay"
