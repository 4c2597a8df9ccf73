"""The text of an ssh configuration file that names every instance which can be logged in to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from gpuherd.contract.instance_models import Instance
from gpuherd.entrypoints.cli.remote.target import parse_ssh

HEAD = "# Written by `gpuherd ssh-config`: changes are lost. Include it from ~/.ssh/config.\n"
# How each block begins.
HOST_LINE = "\nHost "
# What a line of the file cannot be broken by, and no pattern can be made of.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def host_blocks(instances: Iterable[Instance], known_hosts: Path) -> str:
    """Return a block for each instance that runs, by its id, and by its name if that is plain and its own."""
    there = [it for it in instances if it.ssh and (it.usable or it.status == "health_checking")]
    names = Counter(it.name for it in there)
    blocks = (_block(it, known_hosts, named=names[it.name] == 1) for it in there)
    return HEAD + "".join(blocks)


def _block(instance: Instance, known_hosts: Path, *, named: bool) -> str:
    try:
        target = parse_ssh(instance.ssh or "")
    except ValueError:
        # What the cloud wrote is no plain address: nobody shall be sent there.
        return ""
    words = [instance.name] if named and _PLAIN.fullmatch(instance.name) else []
    hosts = " ".join([*words, instance.id])
    return (
        f"{HOST_LINE}{hosts}\n"
        f"    HostName {target.host}\n"
        f"    Port {target.port}\n"
        f"    User {target.user}\n"
        # Ports of the proxy are used again by other machines, with other keys.
        f"    HostKeyAlias {instance.id}\n"
        f"    StrictHostKeyChecking accept-new\n"
        f'    UserKnownHostsFile "{known_hosts}"\n'
    )
