"""Make a network volume if it is not there yet, say what all of them cost, and mount it where PATH says.

GPUHERD_API_KEY=... python3 volumes.py NAME REGION GB [PATH]
"""

from __future__ import annotations

import sys

from gpuherd.client.client_errors import Conflict, GpuherdError
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.catalogue_models import Volume


def main(name: str, region: str, size_gb: str, path: str = "") -> None:
    with Gpuherd() as herd:
        try:
            made = herd.volumes.create(name, region, int(size_gb))
            print(f"made {made.name} in {made.region}")
        except Conflict as problem:
            if problem.code != "VOLUME_EXISTS":
                raise
            print(f"{name} is there already")
        for it in herd.volumes.list():
            print(f"  {it.name}: {it.size_gb} GB in {it.region}, ${it.hourly_price:.6f}/h")
            if path and it.name == name:
                rent_beside(herd, it, path)


def rent_beside(herd: Gpuherd, volume: Volume, path: str) -> None:
    """Rent a machine that has the volume; the region need not be said, the volume pins it."""
    image, mounts = "docker.io/library/ubuntu:22.04", {volume.id: path}
    with herd.rent(volume.name, product_name="4090", image_url=image, volumes=mounts) as gpu:
        # What is written there outlives the machine, which is given back at the end.
        print(f"    at {gpu.volumes[0].mount_path} of a machine in {gpu.region}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:5])
    except GpuherdError as error:
        sys.exit(str(error))
