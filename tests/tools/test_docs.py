"""The documents name what there is: paths, modules, targets of make, links and the pages of decisions."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpuherd.adapters.sql.rental_tables import metadata

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "gpuherd"
DECISIONS = ROOT / "docs" / "decisions"
PAGES = sorted(
    it.relative_to(ROOT)
    for it in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")]
)
ROOMS = sorted(it.name for it in SOURCE.iterdir() if it.is_dir() and it.name != "__pycache__")
TOP = ("src", "tests", "proof", "docs", "bench", "tools", "deploy", "examples")
PATH = re.compile(rf"`((?:{'|'.join([*TOP, *ROOMS])})/[\w./@-]*)(?:::\w+)?`")
STATUS = re.compile(r"^Date: (\d{4}-\d\d-\d\d) · Status: (accepted|superseded by \[\d+\]\([\w.-]+\))\n", re.M)


@cache
def text(page: Path) -> str:
    return (ROOT / page).read_text()


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text(page), re.M)
    return {re.sub(r"[^\w\- ]", "", it.lower().replace("`", "")).replace(" ", "-") for it in headings}


def test_every_path_and_link_and_command_leads_somewhere(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        with subtests.test(str(page)):
            assert dead_links(page) == []
            # What a released version was like is no promise about this one.
            if page.name != "CHANGELOG.md":
                assert missing_paths(page) == []
                assert missing_commands(page) == set()


def missing_paths(page: Path) -> list[str]:
    tests = re.findall(r"pytest (?:-\S+ )*((?:tests/\S+ ?)+)", text(page).replace("`", " "))
    named = PATH.findall(text(page)) + [it.split("::")[0] for group in tests for it in group.split()]
    return [it for it in named if not (ROOT / it).exists() and not (SOURCE / it).exists()]


def missing_commands(page: Path) -> set[str]:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    modules = set(re.findall(r"python\S* -m ([\w.]+)", text(page)))
    missing = {it for it in modules if find_spec(it) is None}
    return missing | set(re.findall(r"(?:`|^ *)make ([a-z-]+)", text(page), re.M)) - targets


def dead_links(page: Path) -> list[str]:
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text(page)):
        path, _, anchor = target.partition("#")
        there = (ROOT / page).parent / path if path else ROOT / page
        if "://" in target:
            continue
        if not there.exists() or (anchor and anchor not in anchors(there.resolve().relative_to(ROOT))):
            dead.append(target)
    return dead


def test_every_table_is_explained() -> None:
    explained = set(re.findall(r"`(\w+)`", text(Path("docs/architecture.md")).rpartition("| table |")[2]))
    assert sorted(set(metadata.tables) - explained) == []


def test_every_decision_has_a_date_and_a_status_and_is_in_the_index(subtests: pytest.Subtests) -> None:
    index = (DECISIONS / "README.md").read_text()
    for path in sorted(DECISIONS.glob("0*.md")):
        with subtests.test(path.name):
            assert path.read_text().startswith(f"# {int(path.name[:4])}. ")
            assert STATUS.search(path.read_text()), "a line like: Date: 2026-11-15 · Status: accepted"
            assert f"]({path.name})" in index
