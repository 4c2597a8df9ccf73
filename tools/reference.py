"""Writes the reference from the code: `python -m tools.reference`, or with `--check` only compares.

The same code always gives the same bytes, so a test can tell when the pages are out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.reference_api import api_page
from tools.reference_cli import cli_page

DOCS = Path(__file__).parent.parent / "docs"
COMMAND = "python -m tools.reference"
PAGES: dict[str, Callable[[], str]] = {"cli.md": cli_page, "api-reference.md": api_page}


def outdated() -> list[str]:
    """Return the pages that are not what the code says."""
    return [name for name, page in PAGES.items() if _stored(DOCS / name) != page()]


def _stored(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def main(argv: Sequence[str]) -> int:
    """Write the pages, or say which ones should be written."""
    if "--check" in argv:
        stale = outdated()
        sys.stderr.write("".join(f"docs/{name} is out of date; run: {COMMAND}\n" for name in stale))
        return 1 if stale else 0
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
