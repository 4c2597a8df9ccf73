"""Each house rule sees what breaks it."""

from __future__ import annotations

from pathlib import Path

from tools.house_rules import CEILINGS, LINES_MAX, MODULES_MAX, read_modules

BROKEN = {
    "gpuherd/usecases/money/budget.py": "class Budget: ...\n",
    "gpuherd/domain/budget.py": "class Budget: ...\n",
    "gpuherd/domain/long.py": "x = 1\n" * (LINES_MAX + 1),
    **{f"gpuherd/full/m{n}.py": "" for n in range(MODULES_MAX + 1)},
    "gpuherd/domain/cloud/deep/machine.py": "",
    "gpuherd/a.py": "import json._default_decoder\nimport gpuherd.b\n",
    "gpuherd/b.py": "from gpuherd import a\n\ndef f(x): exec(x)\n",
    "gpuherd/c.py": "# Whoever reads this\n",
}
ALLOWED = {
    "gpuherd/domain/__init__.py": "",
    "gpuherd/a.py": "from __future__ import annotations\nfrom gpuherd._own import x\nimport gpuherd.b\n",
    "gpuherd/b.py": "if TYPE_CHECKING:\n    from gpuherd import a\n",
}


def broken_rules(root: Path, files: dict[str, str]) -> dict[str, list[str]]:
    for name, source in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(source)
    modules = read_modules(root)
    return {rule.__name__: found for rule in CEILINGS if (found := list(rule(modules)))}


def test_each_rule_sees_what_breaks_it(tmp_path: Path) -> None:
    found = broken_rules(tmp_path, BROKEN)
    assert found.keys() == {it.__name__ for it in CEILINGS}
    assert all(len(places) == 1 for places in found.values()), found


def test_what_is_allowed_breaks_no_rule(tmp_path: Path) -> None:
    assert broken_rules(tmp_path, ALLOWED) == {}
