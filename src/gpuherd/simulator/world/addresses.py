"""Where a machine's ports are said to be reachable: at Novita's host names, or at the simulator itself."""

from __future__ import annotations

from typing import Protocol


class Addresses(Protocol):
    """Words an address; `port` is the container's, `proxy_port` the one drawn for this start."""

    def http(self, machine_id: str, cluster_id: str, port: int) -> str: ...

    def tcp(self, cluster_id: str, proxy_port: int) -> str: ...

    def ssh(self, cluster_id: str, proxy_port: int) -> str: ...


class NovitaAddresses:
    """The real host names, which only the real cloud answers."""

    def http(self, machine_id: str, cluster_id: str, port: int) -> str:
        return f"https://{machine_id}-{port}.{cluster_id}.gpu-instance.novita.ai"

    def tcp(self, cluster_id: str, proxy_port: int) -> str:
        return f"proxy.{cluster_id}.gpu-instance.novita.ai:{proxy_port}"

    def ssh(self, cluster_id: str, proxy_port: int) -> str:
        return f"ssh -p {proxy_port} root@proxy.{cluster_id}.gpu-instance.novita.ai"


class LocalAddresses:
    """Addresses that work without a network: the simulator plays the program on every machine."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url.rstrip("/")

    def http(self, machine_id: str, cluster_id: str, port: int) -> str:
        return f"{self._base_url}/_apps/{machine_id}/{port}"

    def tcp(self, cluster_id: str, proxy_port: int) -> str:
        return f"127.0.0.1:{proxy_port}"

    def ssh(self, cluster_id: str, proxy_port: int) -> str:
        return f"ssh -p {proxy_port} root@127.0.0.1"
