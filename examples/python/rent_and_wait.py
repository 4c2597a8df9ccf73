"""Rent a GPU, wait until it can be used, print how to reach it, and stop it. Needs `pip install gpuherd`.

GPUHERD_API_KEY=... python3 rent_and_wait.py [--webhook-url URL]
"""

from __future__ import annotations

import argparse
import sys

from gpuherd.client.client_errors import GpuherdError
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.instance_models import Instance


def tell(instance: Instance) -> None:
    """Say how it goes."""
    stage = f"accepted as {instance.id}:" if instance.status == "creating" else f"{instance.status:<16}"
    print(stage, instance.status_reason or "", flush=True)


def show(gpu: Instance) -> None:
    """Say how to reach it."""
    print(f"ready: {gpu.product_name} in {gpu.region} for ${gpu.hourly_price}/h")
    if gpu.ssh:
        print(f"  ssh: {gpu.ssh}")
    for mapping in gpu.port_mappings:
        print(f"  port {mapping.port}: {mapping.endpoint}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Rent a GPU, wait, show how to reach it, stop it.")
    parser.add_argument("--name", default="example-python")
    parser.add_argument("--gpu", default="RTX 4090 24GB")
    parser.add_argument("--template", default="101")
    parser.add_argument("--max-price", default="1.00", help="USD an hour for the whole instance")
    parser.add_argument("--webhook-url")
    options = parser.parse_args()

    with Gpuherd() as herd:
        # Whatever happens in the block, Ctrl-C included, the instance is released: "stop" keeps its disk.
        with herd.rent(
            options.name,
            product_name=options.gpu,
            template_id=options.template,
            max_hourly_price=options.max_price,
            webhook_url=options.webhook_url,
            on_progress=tell,
            release="stop",
        ) as gpu:
            show(gpu)
            # Here your work would be done.
        herd.instances.wait(gpu, until="exited", on_progress=tell)


if __name__ == "__main__":
    try:
        main()
    except GpuherdError as error:
        sys.exit(str(error))
