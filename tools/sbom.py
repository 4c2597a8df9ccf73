"""Writes what gpuherd is made of, as CycloneDX 1.5: `python -m tools.sbom > sbom.json`.

The same lock always gives the same bytes, so there is no time in it and its number comes from its contents.
"""

from __future__ import annotations

import json
import sys
import tomllib
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.lock import Locked, read_lock

ROOT = Path(__file__).parent.parent


def bill(name: str, version: str, packages: Sequence[Locked]) -> dict[str, Any]:
    """Return the bill of materials of an application with these packages."""
    root = f"pkg:pypi/{name}@{version}"
    content = {
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": name,
                "version": version,
                "purl": root,
            }
        },
        "components": [_component(it) for it in packages],
        "dependencies": _dependencies(name, root, packages),
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        **content,
    }


def _component(it: Locked) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": it.purl,
        "name": it.name,
        "version": it.version,
        "purl": it.purl,
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in it.digests],
    }


def _dependencies(name: str, root: str, packages: Sequence[Locked]) -> list[dict[str, Any]]:
    """Turn the lock's "because of whom" round: who needs what."""
    owners = [(name, root), *((it.name, it.purl) for it in packages)]
    return [
        {"ref": ref, "dependsOn": sorted(it.purl for it in packages if owner in it.wanted_by)}
        for owner, ref in owners
    ]


def main() -> int:
    """Print the bill for the lock of this repository."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = read_lock((ROOT / "requirements.lock").read_text())
    sys.stdout.write(json.dumps(bill(project["name"], project["version"], packages), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
