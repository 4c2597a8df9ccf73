"""The bill of materials has the shape that its readers expect, and is the same each time."""

from __future__ import annotations

import json
import re

import pytest

from tools import sbom
from tools.lock import Locked, UnreadableLock, read_lock
from tools.sbom import bill

A, B = "a" * 64, "b" * 64
LOCK = f"""\
small_Thing[extra]==1.0 ; python_version > "3" \\
    --hash=sha256:{B} \\
    --hash=sha256:{A}
    # via gpuherd (pyproject.toml)
deep==2.1.post1 \\
    --hash=sha256:{A}
    # via
    #   gpuherd (pyproject.toml)
    #   small-thing
"""


def test_a_lock_is_read_with_names_as_the_index_compares_them() -> None:
    assert read_lock(LOCK) == [
        Locked("deep", "2.1.post1", (A,), ("gpuherd", "small-thing")),
        Locked("small-thing", "1.0", (A, B), ("gpuherd",)),
    ]


@pytest.mark.parametrize(
    "line", ["thing>=1", "thing", "-e .", "git+https://example.com/x", "thing @ file:///x"]
)
def test_what_is_not_pinned_is_not_passed_over(line: str) -> None:
    with pytest.raises(UnreadableLock, match="line 10"):
        read_lock(f"{LOCK}{line}\n")


def test_every_package_is_in_the_bill_with_its_files_and_whom_it_needs() -> None:
    made = bill("gpuherd", "1", read_lock(LOCK))
    assert (made["bomFormat"], made["specVersion"], made["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made["serialNumber"])
    assert made["components"][1] == {
        "type": "library",
        "bom-ref": "pkg:pypi/small-thing@1.0",
        "name": "small-thing",
        "version": "1.0",
        "purl": "pkg:pypi/small-thing@1.0",
        "hashes": [{"alg": "SHA-256", "content": A}, {"alg": "SHA-256", "content": B}],
    }
    assert {it["ref"]: it["dependsOn"] for it in made["dependencies"]} == {
        "pkg:pypi/gpuherd@1": ["pkg:pypi/deep@2.1.post1", "pkg:pypi/small-thing@1.0"],
        "pkg:pypi/small-thing@1.0": ["pkg:pypi/deep@2.1.post1"],
        "pkg:pypi/deep@2.1.post1": [],
    }


def test_another_content_has_another_number() -> None:
    one, other = (bill("gpuherd", it, read_lock(LOCK)) for it in ("1", "2"))
    assert one["serialNumber"] != other["serialNumber"]


def test_our_own_bill_is_whole_and_the_same_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert sbom.main() == 0
    first = capsys.readouterr().out
    sbom.main()
    assert capsys.readouterr().out == first
    made = json.loads(first)
    references = {it["bom-ref"] for it in made["components"]}
    assert len(references) == len(made["components"]) > 40
    assert all(it["hashes"] for it in made["components"])
    needed = {ref for it in made["dependencies"] for ref in it["dependsOn"]}
    # Whatever is installed, somebody needs it.
    assert needed == references
