"""Runs a command on a machine that continues without a connection, and copies files there and back.

The machine keeps the output in files, so a lost connection loses nothing: the next one continues at the same
byte. The job starts once: only one caller can make the folder `started`.
"""

from __future__ import annotations

import fnmatch
import os
import shlex
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, cast

from gpuherd.entrypoints.cli.cli_errors import CommandError, ExitCode
from gpuherd.entrypoints.cli.ssh_connection import RUN_SCRIPT, SshConnection

# How often the main thread checks for an interrupt.
CHECK_INTERVAL_S = 0.2
STREAMS = ("out", "err")

_START = """\
cd "$HOME/{home}" || exit 1
mkdir started 2>/dev/null || exit 0
cd work || exit 1
export GPUHERD_JOB={job}
cat > ../command <<'{mark}'
{exports}{command}
{mark}
detach=
command -v setsid >/dev/null 2>&1 && detach=setsid
$detach sh -c 'trap : HUP INT TERM; echo $$ >../pid; sh ../command >../out 2>../err
echo $? >../exit.new; mv ../exit.new ../exit' >/dev/null 2>&1 </dev/null &
"""

# A login does not always get the variables of the container; its first process has them. Line breaks in a
# value are set aside while the null characters between variables become the line breaks that sed reads by.
_INHERITED = """\
if [ -z "${{{name}+x}}" ]; then
  {name}=$(tr '\\000\\n' '\\n\\001' 2>/dev/null </proc/1/environ | sed -n 's/^{name}=//p' | tr '\\001' '\\n')
fi
[ -n "${name}" ] || {{ echo 'gpuherd: the machine has no variable {name}' >&2; exit 125; }}
export {name}
"""

# Check the end before the size, so that all output until then is read. A job that is gone without an exit
# code was killed from outside, or the machine was restarted.
_FOLLOW = """\
cd "$HOME/{home}" || exit 1
at={at}
while :; do
  gone= ended=
  [ -e pid ] && ! kill -0 "$(cat pid)" 2>/dev/null && gone=1
  [ -e exit ] && ended=1
  size=0
  [ -e {stream} ] && {{ size=$(stat -c %s {stream} 2>/dev/null) || size=$(wc -c < {stream}); }}
  if [ "$size" -gt "$at" ]; then
    tail -c +$((at + 1)) {stream} | head -c $((size - at)) || exit 1
    at=$size
  elif [ -n "$ended" ]; then
    exit 0
  elif [ -n "$gone" ]; then
    echo "the command was killed from outside" >&2
    exit 1
  else
    sleep 0.3 2>/dev/null || sleep 1
  fi
done
"""

_SIGNAL = """\
cd "$HOME/{home}" 2>/dev/null || exit 0
[ -e exit ] && exit 0
group=$(cat pid 2>/dev/null) || exit 0
kill -{signal} -- "-$group" 2>/dev/null || pkill -{signal} -P "$group" 2>/dev/null
exit 0
"""


class RemoteJob:
    """One command in its own folder. The connection can be replaced at any time."""

    def __init__(self, connection: SshConnection, job_id: str) -> None:
        assert job_id.isalnum(), "it becomes part of commands"
        self.connection = connection
        self._job_id = job_id
        self._home = f".gpuherd/{job_id}"
        self._seen = dict.fromkeys(STREAMS, 0)

    def send(self, folder: Path | None, left_out: Sequence[str], tell: Progress) -> None:
        """Create the folder there with the content of the local one.

        After a lost connection, send it again completely.
        """
        self.connection.ask(f'rm -rf "$HOME/{self._home}/work" && mkdir -p "$HOME/{self._home}/work"\n')
        if folder is not None:
            send_archive(
                self.connection, f'exec tar -xf - -C "$HOME/{self._home}/work"', folder, ".", left_out, tell
            )

    def start(
        self, argv: Sequence[str], environment: Mapping[str, str], inherited: Sequence[str] = ()
    ) -> None:
        """Start the command once; a repeat does nothing.

        `inherited` are variables that only the machine knows.
        """
        exports = "".join(_INHERITED.format(name=name) for name in inherited)
        exports += "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())
        command = f"exec {shlex.join(argv)}"
        # No line of the user may end the here-document.
        mark = f"END_{self._job_id}"
        assert mark not in (exports + command)
        script = _START.format(home=self._home, job=self._job_id, exports=exports, command=command, mark=mark)
        self.connection.ask(script)

    def follow(self, out: IO[bytes], err: IO[bytes]) -> int:
        """Pass on the output and return the exit code. After SshLost, call it again."""
        followers = [_Follower(self, stream, sink) for stream, sink in zip(STREAMS, (out, err), strict=True)]
        try:
            for follower in followers:
                follower.begin()
            for follower in followers:
                follower.finish()
        finally:
            for follower in followers:
                follower.abort()
        said = self.connection.ask(f'cat "$HOME/{self._home}/exit"\n').strip()
        if not said.isdigit():
            raise CommandError(ExitCode.FAILED, "REMOTE_FAILED", "the machine does not know how it ended")
        return int(said)

    def signal(self, name: str) -> None:
        """Send a signal: TERM or KILL."""
        self.connection.ask(_SIGNAL.format(home=self._home, signal=name))

    def fetch(self, path: str, into: Path, tell: Progress) -> int:
        """Copy a file or folder of the working folder back; return how many entries came."""
        script = f'cd "$HOME/{self._home}/work" && exec tar -cf - -- {shlex.quote(path)}\n'
        return fetch_archive(self.connection, script, into, tell)

    def script_of(self, stream: str) -> str:
        """Return the script that prints a stream from the present position."""
        return _FOLLOW.format(home=self._home, stream=stream, at=self._seen[stream])

    def note_seen(self, stream: str, count: int) -> None:
        """Advance the position of a stream."""
        self._seen[stream] += count


class _Follower:
    """Passes one stream on in a thread, so that Ctrl-C reaches the main thread."""

    def __init__(self, job: RemoteJob, stream: str, sink: IO[bytes]) -> None:
        self._job = job
        self._stream = stream
        self._sink = sink
        self._call = job.connection.call(RUN_SCRIPT)
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._trouble: OSError | None = None

    def begin(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        while self._thread.is_alive():
            self._thread.join(CHECK_INTERVAL_S)
        if self._trouble is not None:
            # The reader of our output is gone.
            raise self._trouble
        self._call.conclude()

    def abort(self) -> None:
        self._call.abort()
        if self._thread.is_alive():
            self._thread.join()
        self._call.close()

    def _pass_on(self) -> None:
        self._call.say(self._job.script_of(self._stream))
        while block := self._call.answers.read1(BLOCK):
            try:
                self._sink.write(block)
                self._sink.flush()
            except OSError as trouble:
                self._trouble = trouble
                return
            self._job.note_seen(self._stream, len(block))


def send_archive(
    connection: SshConnection, command: str, source: Path, name: str, left_out: Sequence[str], tell: Progress
) -> None:
    """Pack something here and let `command` unpack it there."""
    with connection.call(command, stdout=False) as call:
        # If it ended before it had everything, its own error message says why.
        with suppress(BrokenPipeError):
            pack(source, name, call.input, left_out, tell)
            call.input.close()
        call.conclude()


def fetch_archive(connection: SshConnection, script: str, into: Path, tell: Progress) -> int:
    """Let a script pack something there, and unpack it here; return how many entries came."""
    with connection.call(RUN_SCRIPT) as call:
        call.say(script)
        try:
            count = unpack(call.answers, into, tell)
        except UnpackRefused as refusal:
            # A broken stream usually means a lost connection, not a bad archive.
            call.conclude()
            raise CommandError(ExitCode.FAILED, "UNPACK_REFUSED", str(refusal)) from refusal
        # tar pads the end.
        while call.answers.read(BLOCK):
            pass
        call.conclude()
        return count


# --- files on their way: packed into a stream and out of it, never as a whole in memory ---


# Not copied: large files, files that can be made again, and secrets of this computer.
LEFT_OUT = (
    ".git",
    ".venv",
    "venv",
    "node_modules",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
)
# Read by every tar that an image may have.
FORMAT = tarfile.GNU_FORMAT
BLOCK = 64 * 1024

Progress = Callable[[int], None]


class UnpackRefused(Exception):
    """A stranger's archive tried to write outside of its folder, or is not an archive."""


def pack(source: Path, name: str, into: IO[bytes], left_out: Sequence[str], tell: Progress) -> None:
    """Write a file, or a folder with everything in it, as `name` ("." for a folder's content)."""
    with tarfile.open(fileobj=_counted(into, tell), mode="w|", format=FORMAT) as archive:
        for path, inside in _entries(source, PurePosixPath(name), left_out):
            try:
                archive.add(path, arcname=str(inside), recursive=False)
            except FileNotFoundError:
                # It was removed after it was listed, for example a rotated log.
                continue


def unpack(archive_bytes: IO[bytes], into: Path, tell: Progress) -> int:
    """Return how many entries were written. Nothing is written outside of the folder."""
    written = 0
    try:
        with tarfile.open(fileobj=_counted(archive_bytes, tell), mode="r|") as archive:
            for member in archive:
                # The filter rejects absolute names, "..", links that lead out and devices, and drops owners
                # and odd modes.
                archive.extract(member, into, filter="data")
                written += 1
    except tarfile.FilterError as error:
        raise UnpackRefused(
            f"the machine sent {error.tarinfo.name!r}, which leads out of the folder"
        ) from error
    except tarfile.ReadError as error:
        if written:
            raise UnpackRefused(f"what the machine sent ends too early: {error}") from error
    return written


def _entries(
    source: Path, name: PurePosixPath, left_out: Sequence[str]
) -> Iterator[tuple[Path, PurePosixPath]]:
    if source.is_symlink() or not source.is_dir():
        yield source, name
        return
    yield source, name
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        if not any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in left_out):
            yield from _entries(Path(entry.path), name / entry.name, left_out)


class _Counted:
    """Counts the bytes of a stream."""

    def __init__(self, stream: IO[bytes], tell: Progress) -> None:
        self._stream = stream
        self._tell = tell
        self._bytes = 0

    def write(self, block: bytes) -> int:
        self._stream.write(block)
        self._add(len(block))
        return len(block)

    def read(self, size: int = BLOCK) -> bytes:
        block = self._stream.read(size)
        self._add(len(block))
        return block

    def _add(self, count: int) -> None:
        self._bytes += count
        self._tell(self._bytes)


def _counted(stream: IO[bytes], tell: Progress) -> IO[bytes]:
    # A stream that is read or written from its beginning to its end needs only these methods.
    return cast(IO[bytes], _Counted(stream, tell))
