"""Rent a GPU that runs an image of your own choice, without any template. Needs `pip install gpuherd`.

GPUHERD_API_KEY=... HF_TOKEN=... python3 rent_image.py [IMAGE] [--env HF_TOKEN]
"""

from __future__ import annotations

import argparse
import os
import sys

from gpuherd.client.client_errors import GpuherdError
from gpuherd.client.sync_client import Gpuherd
from gpuherd.client.wish import Wish


def main() -> None:
    parser = argparse.ArgumentParser(description="Rent a GPU for an image, show what runs, give it back.")
    parser.add_argument("image", nargs="?", default="docker.io/pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel")
    parser.add_argument("--name", default="example-image")
    parser.add_argument("--gpu", default="4090")
    parser.add_argument("--command", default="sleep infinity")
    parser.add_argument("--port", action="append", default=[], help="such as 8000/http")
    parser.add_argument("--env", action="append", default=[], help="a variable to take along from here")
    parser.add_argument("--max-price", default="1.00", help="USD an hour for the whole instance")
    options = parser.parse_args()

    wish: Wish = {
        "image_url": options.image,
        "command": options.command,
        "ports": options.port,
        "max_hourly_price": options.max_price,
        # A value on the command line would be in the list of processes, so only names are there.
        "envs": {name: os.environ[name] for name in options.env},
    }
    with Gpuherd() as herd:
        plan = herd.plan(options.gpu, **wish)
        print(f"would run {plan.image_url}: {plan.command} for ${plan.best_hourly_price}/h")
        with herd.rent(options.name, product_name=options.gpu, **wish) as gpu:
            print(f"runs: {gpu.image_url}: {gpu.command}")
            for mapping in gpu.port_mappings:
                print(f"  port {mapping.port}: {mapping.endpoint}")
            # gpuherd never shows a value again.
            print("  variables:", ", ".join(f"{name}={value}" for name, value in gpu.envs.items()) or "none")
            # Here your work would be done; then the machine is given back.


if __name__ == "__main__":
    try:
        main()
    except GpuherdError as error:
        sys.exit(str(error))
