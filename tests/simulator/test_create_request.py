"""The cloud's rules for the body of a create call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.simulator.simulated_request import (
    ExposedPort,
    SimulatedError,
    Tool,
    read_create_request,
    read_ports,
)
from tests.simulator.builders import a_body


def test_a_full_body_is_read() -> None:
    request = read_create_request(
        a_body(
            imageAuth="user:pass",
            imageAuthId="abc",
            envs=[{"key": "A", "value": "1"}],
            tools=[{"name": "Jupyter", "port": "8888", "type": "http"}],
            command="run",
            entrypoint="sh",
            billingMode="spot",
            networkStorages=[{"Id": "s1"}],
            networkId="n1",
            minCudaVersion="12.4",
            somethingNew={"ignored": True},
        )
    )
    assert request.ports == (ExposedPort(8080, "http"), ExposedPort(22, "tcp"))
    assert request.tools == (Tool("Jupyter", 8888, "http"),)
    assert request.envs == (("A", "1"),)
    assert request.network_storages == (("s1", "/network"),)
    assert request.billing_mode == "spot"


def test_a_missing_kind_is_a_gpu_and_an_empty_mode_is_on_demand() -> None:
    request = read_create_request(a_body(kind=None, billingMode=""))
    assert (request.kind, request.billing_mode) == ("gpu", "onDemand")


def test_months_force_a_subscription() -> None:
    assert read_create_request(a_body(month=3, billingMode="onDemand")).billing_mode == "monthly"


def test_a_small_disk_is_raised_to_the_smallest() -> None:
    assert read_create_request(a_body(rootfsSize=1)).disk_gb == 10


def test_a_number_may_come_as_a_string() -> None:
    assert read_create_request(a_body(gpuNum="2")).gpu_num == 2


def test_a_machine_without_gpu_needs_neither_count_nor_disk() -> None:
    request = read_create_request(a_body(kind="cpu", productId="cpu.4c8g", gpuNum=None, rootfsSize=None))
    assert (request.gpu_num, request.disk_gb) == (0, 10)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"productId": None}, "productId"),
        ({"productId": "x" * 256}, "productId"),
        ({"productId": 26}, "productId"),
        ({"gpuNum": None}, "gpuNum"),
        ({"gpuNum": 0}, "gpuNum"),
        ({"gpuNum": 9}, "gpuNum"),
        ({"gpuNum": 1.5}, "gpuNum"),
        ({"gpuNum": True}, "gpuNum"),
        ({"gpuNum": "many"}, "gpuNum"),
        ({"rootfsSize": None}, "rootfsSize"),
        ({"rootfsSize": 6145}, "rootfsSize"),
        ({"imageUrl": ""}, "imageUrl"),
        ({"imageUrl": "x" * 501}, "imageUrl"),
        ({"kind": "tpu"}, "kind"),
        ({"name": "x" * 256}, "name"),
        ({"name": ["list"]}, "name"),
        ({"billingMode": "free"}, "billingMode"),
        ({"month": -1}, "month"),
        ({"command": "x" * 2048}, "command"),
        ({"envs": "A=1"}, "envs"),
        ({"envs": ["A=1"]}, "envs.0"),
        ({"envs": [{"key": "A", "value": "x" * 4096}]}, "envs.0.value"),
        ({"envs": [{"value": "1"}]}, "envs.0.key"),
        ({"envs": [{"key": "A", "value": "1"}] * 101}, "envs"),
        ({"tools": [{"name": "Jupyter"}]}, "tools.0.port"),
        ({"ports": "80"}, "ports"),
        ({"ports": "80/udp"}, "ports"),
        ({"ports": "0/http"}, "ports"),
        ({"ports": "65536/http"}, "ports"),
        ({"ports": "2222/tcp"}, "ports"),
        ({"ports": "80/http,80/tcp"}, "ports"),
        ({"ports": ",".join(f"{port}/tcp" for port in range(100, 116))}, "ports"),
        ({"ports": [80]}, "ports"),
        ({"networkStorages": [{}]}, "networkStorages.0.Id"),
    ],
)
def test_a_bad_field_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(SimulatedError) as refusal:
        read_create_request({**a_body(), **changes})
    assert (refusal.value.status, refusal.value.reason) == (400, "VALIDATOR_PARAM")
    assert f"parameter {named}:" in refusal.value.message


@given(st.dictionaries(st.integers(3000, 65535), st.sampled_from(["http", "tcp"]), max_size=15))
def test_ports_survive_their_spelling(ports: dict[int, str]) -> None:
    spelt = ",".join(f"{number}/{protocol}" for number, protocol in ports.items())
    assert read_ports(spelt) == tuple(ports.items())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(field=st.sampled_from([*a_body(), "envs", "tools", "month", "networkStorages"]), value=JSON)
def test_whatever_is_sent_is_either_read_or_refused(field: str, value: object) -> None:
    try:
        read_create_request({**a_body(), field: value})
    except SimulatedError as refusal:
        assert refusal.reason == "VALIDATOR_PARAM"


def test_a_cuda_version_is_two_numbers() -> None:
    assert read_create_request(a_body(minCudaVersion="12.4")).min_cuda_version == "12.4"
    with pytest.raises(SimulatedError, match="minCudaVersion"):
        read_create_request(a_body(minCudaVersion="twelve"))
