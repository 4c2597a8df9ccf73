"""Have an image pulled into a region, and rent there when it is: the machine starts sooner.

GPUHERD_API_KEY=... python3 prewarm.py IMAGE REGION [--rent] [--remove]
"""

from __future__ import annotations

import argparse
import sys

from gpuherd.client.client_errors import Conflict, GpuherdError
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.catalogue_models import Prewarm


def main() -> None:
    parser = argparse.ArgumentParser(description="Pull an image ahead of time.")
    parser.add_argument("image")
    parser.add_argument("region")
    parser.add_argument("--rent", action="store_true", help="a machine with it, and give it back")
    parser.add_argument("--remove", action="store_true", help="the task again, which makes room for another")
    options = parser.parse_args()

    with Gpuherd() as herd:
        task = prewarmed(herd, options.image, options.region)
        size_gb = (task.size_bytes or 0) / 1e9
        print(f"pulled: {task.image_url} is in {task.region} ({size_gb:.1f} GB)")
        quota = herd.prewarms.quota()
        print(f"quota: {quota.used} of {quota.limit} tasks")
        if options.rent:
            wish = {"product_name": "4090", "image_url": options.image, "command": "sleep infinity"}
            with herd.rent("prewarmed", **wish, regions=[options.region]) as gpu:
                print(f"runs: {gpu.image_url} in {gpu.region}")
        if options.remove:
            herd.prewarms.delete(task)
            print("removed")


def prewarmed(herd: Gpuherd, image: str, region: str) -> Prewarm:
    """Return the task for this image when it is done; make it if there is none."""
    try:
        task_id = herd.prewarms.create(image, region).id
    except Conflict as problem:
        if problem.code != "PREWARM_EXISTS":
            raise
        task_id = problem.details["id"]
        print("there is a task for it already")
    return herd.prewarms.wait(task_id, on_progress=lambda it: print(f"  {it.state}"))


if __name__ == "__main__":
    try:
        main()
    except GpuherdError as error:
        sys.exit(str(error))
