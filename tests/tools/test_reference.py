"""The reference is what the code says, and every code that somebody can meet is explained."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gpuherd.entrypoints.route_scopes import ROUTE_SCOPES
from gpuherd.settings import SETTING_NAMES
from tools import reference
from tools.reference_api import api_page
from tools.reference_cli import cli_page
from tools.reference_text import table

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "gpuherd"
TROUBLESHOOTING = (ROOT / "docs" / "troubleshooting.md").read_text()


def test_the_pages_are_up_to_date() -> None:
    assert reference.outdated() == [], f"run: {reference.COMMAND}"


def test_every_object_that_a_reply_names_is_on_the_page() -> None:
    page = api_page()
    objects = set(re.findall(r"^### (\w+)$", page, re.MULTILINE))
    assert {"InstanceRecord", "Plan", "JobPage", "InstanceEventBody"} <= objects
    assert set(re.findall(r"\[`(\w+)`\]\(#\w+\)", page)) <= objects
    replies = re.findall(r"^Scope: \w+\. Answers (.*); refuses", page, re.MULTILINE)
    assert len(replies) == len(ROUTE_SCOPES)
    # What answers 204 has nothing to show.
    assert all(" with " in it for it in replies if it != "204")


def test_every_link_inside_a_page_leads_somewhere() -> None:
    for page in (cli_page(), api_page()):
        headings = {anchor(line.lstrip("# ")) for line in page.splitlines() if line.startswith("#")}
        assert set(re.findall(r"\]\(#([^)]*)\)", page)) <= headings


def anchor(heading: str) -> str:
    """As GitHub makes them."""
    return re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-"))


def test_pages_are_written_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "DOCS", tmp_path)
    assert reference.main(["--check"]) == 1
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0
    (tmp_path / "cli.md").write_text("old")
    assert reference.outdated() == ["cli.md"]


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert table(("a",), [("x|y\nz",)])[2] == "| x\\|y z |"
    assert table(("a",), []) == []


# Words in capitals that are no codes of ours: what Novita says, what an option is called, names of states.
NO_CODES = {
    *(
        "NETWORK_STORAGE_NOT_FOUND",
        "NETWORK_STORAGE_IN_USE",
        "CUR_CLUSTER_NETWORK_STORAGE_NOT_SUPPORT",
        "IMAGE_AUTH_IN_USE",
    ),
    *("BALANCE_NOT_ENOUGH", "EXPIRED_OR_BALANCE_NOT_ENOUGH", "INSUFFICIENT_RESOURCE", "RESOURCE_NOT_FOUND"),
    *(
        "MIGRATE_INSUFFICIENT_RESOURCE",
        "CREATE_GPU_NUM_LIMIT",
        "CREATE_INSTANCE_LIMIT",
        "TEMPLATE_IS_PRIVATE",
    ),
    *(
        "CLUSTER_STATUS",
        "NODE_STATUS",
        "HALF_OPEN",
        "CLOUD_ID",
        "NAME_OR_ID",
        "ID_OR_IMAGE",
        "GPUHERD_TAG",
        "BODY_MAX_BYTES",
    ),
    # Of the seeds' API; ours does not answer with them, but the client would know what they mean.
    *("NO_OPTIMAL_PRODUCT", "NO_AVAILABLE_PRODUCTS"),
}
SEVERAL_WORDS = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
ONE_WORD = re.compile(r"[A-Z]{4,}")


def codes_in(tree: ast.AST) -> Iterator[str]:
    """Every text that is written like a code, and single words where only a code can stand."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(word)) if SEVERAL_WORDS.fullmatch(word):
                yield word
            case (
                ast.Assign(targets=[ast.Name(id="code")], value=ast.Constant(value=str(word)))
                | ast.keyword(arg="code", value=ast.Constant(value=str(word)))
                | ast.Call(func=ast.Name(id="problem"), args=[_, ast.Constant(value=str(word)), *_])
            ) if ONE_WORD.fullmatch(word):
                yield word


@cache
def codes() -> set[str]:
    files = [path for path in SOURCE.rglob("*.py") if "simulator" not in path.relative_to(SOURCE).parts]
    found = {code for path in files for code in codes_in(ast.parse(path.read_text()))}
    # This one is both.
    return found - NO_CODES - (SETTING_NAMES - {"REQUEST_TIMEOUT"})


def test_codes_are_found_where_they_stand() -> None:
    assert {"VALIDATION_ERROR", "CONFLICT", "OVERLOADED", "UNAUTHORIZED", "INVALID_GPU_NUM"} <= codes()


def test_every_code_is_explained() -> None:
    explained = set(re.findall(r"`([A-Z][A-Z0-9_]+)`", TROUBLESHOOTING))
    assert sorted(codes() - explained) == [], "add these to docs/troubleshooting.md"


def test_no_code_is_explained_that_does_not_exist() -> None:
    firsts = [line.split("|")[1] for line in TROUBLESHOOTING.splitlines() if line.startswith("| `")]
    explained = set(re.findall(r"`([A-Z][A-Z0-9_]+)`", " ".join(firsts)))
    assert sorted(explained - codes()) == []
