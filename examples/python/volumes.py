"""Make a network volume if it is not there yet, and say what all of them cost.

GPUHERD_API_KEY=... python3 volumes.py NAME REGION GB
"""

from __future__ import annotations

import sys

from gpuherd.client import Conflict, Gpuherd, GpuherdError


def main(name: str, region: str, size_gb: str) -> None:
    with Gpuherd() as herd:
        try:
            made = herd.volumes.create(name, region, int(size_gb))
            print(f"made {made.name} in {made.region}")
        except Conflict as problem:
            if problem.code != "VOLUME_EXISTS":
                raise
            print(f"{name} is there already")
        for it in herd.volumes.list():
            print(f"  {it.name}: {it.size_gb} GB in {it.region}, ${it.hourly_price}/h")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4])
    except GpuherdError as error:
        sys.exit(str(error))
