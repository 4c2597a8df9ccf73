"""The documents name what there is: paths, modules, targets of make, links and the pages of decisions."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpuherd.adapters.sql.schema.tables import metadata

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "gpuherd"
DECISIONS = ROOT / "docs" / "decisions"
PAGES = sorted(
    it.relative_to(ROOT)
    for it in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")]
)
# What a released version was like is no promise about this one.
CURRENT = [it for it in PAGES if it.name != "CHANGELOG.md"]
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


@pytest.mark.parametrize("page", CURRENT, ids=str)
def test_every_path_exists(page: Path) -> None:
    named = PATH.findall(text(page))
    missing = [it for it in named if not (ROOT / it).exists() and not (SOURCE / it).exists()]
    assert missing == []


@pytest.mark.parametrize("page", CURRENT, ids=str)
def test_every_test_in_a_command_exists(page: Path) -> None:
    named = re.findall(r"pytest (?:-\S+ )*((?:tests/\S+ ?)+)", text(page).replace("`", " "))
    paths = [it.split("::")[0] for group in named for it in group.split()]
    assert [it for it in paths if not (ROOT / it).exists()] == []


@pytest.mark.parametrize("page", CURRENT, ids=str)
def test_every_module_that_is_run_can_be_found(page: Path) -> None:
    modules = set(re.findall(r"python\S* -m ([\w.]+)", text(page)))
    assert [it for it in modules if find_spec(it) is None] == []


@pytest.mark.parametrize("page", CURRENT, ids=str)
def test_every_target_of_make_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"(?:`|^ *)make ([a-z-]+)", text(page), re.M))
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (ROOT / page).parent / path if path else ROOT / page
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there.resolve().relative_to(ROOT)), target


def test_every_module_of_the_glossary_exists() -> None:
    rows = [it for it in text(Path("docs/glossary.md")).splitlines() if it.startswith("| ")]
    modules = [re.findall(r"`([\w/]+\.py)`", row.rsplit("|", 2)[1]) for row in rows]
    named = [it for found in modules for it in found]
    assert len(named) > 40
    assert [it for it in named if not (SOURCE / it).is_file()] == []


def test_every_table_is_explained() -> None:
    explained = set(re.findall(r"`(\w+)`", text(Path("docs/architecture.md")).rpartition("| table |")[2]))
    assert sorted(set(metadata.tables) - explained) == []


@pytest.mark.parametrize("page", sorted(it.name for it in DECISIONS.glob("0*.md")))
def test_every_decision_has_a_date_and_a_status_and_is_in_the_index(page: str) -> None:
    decision = (DECISIONS / page).read_text()
    assert decision.startswith(f"# {int(page[:4])}. ")
    assert STATUS.search(decision), "a line like: Date: 2026-11-15 · Status: accepted"
    assert f"]({page})" in (DECISIONS / "README.md").read_text()
