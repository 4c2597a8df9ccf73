"""An instance that existed long before the run: its machine is a witness for lists of the cloud."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from gpuherd.adapters.novita.novita_json import read_machine
from gpuherd.domain.cloud import machine as domain
from gpuherd.domain.cloud.observation import ObservedMachine
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import ID_PREFIX, Goal, Instance, Rental, Status
from gpuherd.domain.instance.instance_event import Event
from gpuherd.domain.instance.launch_spec import TAG_VARIABLE
from gpuherd.domain.instance.rent_attempt import Attempt, AttemptState, Tag, cloud_name
from gpuherd.simulator.novita_shapes import instance_shape
from gpuherd.simulator.simulated_machine import SimulatedMachine, Snapshot, StatusChange
from gpuherd.simulator.simulated_request import CreateRequest, read_create_request
from gpuherd.simulator.world import World
from proof.chaos.checks.evidence import Accepted, Evidence
from tests.support.herd import PRODUCT, Herd
from tests.support.memory.instances.observations import sighting_row
from tests.support.memory.tables import ClaimRow, InstanceRow

INSTANCE_AGE = timedelta(hours=1)
NAME = "elder"
PRODUCT_ID, CLUSTER_ID, REGION = "4090.16c96g.v2", "cn-hongkong-1", "CN-HK-01"
IMAGE = "docker.io/library/ubuntu:22.04"


def place_witness_instance(evidence: Evidence, now: datetime, n: int = 0) -> str:
    """Put an elder into the world and into our memory, as an hour of quiet life would; return its id."""
    key, name = f"{n:026d}", f"{NAME}-{n}" if n else NAME
    tables, instance_id, since = evidence.tables, ID_PREFIX + key, now - INSTANCE_AGE
    tag = Tag(tables.flags["installation"], key, 1)
    machine = _rent(evidence.world, cloud_name(name, tag), str(tag))
    attempt = Attempt(
        instance_id=instance_id,
        n=1,
        tag=str(tag),
        state=AttemptState.BOUND,
        product_id=PRODUCT_ID,
        product_name=PRODUCT,
        region=REGION,
        cluster_id=CLUSTER_ID,
        gpu_hourly_usd=Decimal("0.2"),
        sent_at=since,
        boot_id="boot",
        closed_at=since,
        cloud_id=machine.id,
    )
    world = evidence.world
    shown = Snapshot(machine, world.now(), "running")
    seen = read_machine(instance_shape(shown, world.catalogue, world.addresses, with_secrets=False))
    assert seen is not None
    with tables:
        tables.put(tables.instances, instance_id, InstanceRow(_instance(instance_id, name, seen, since)))
        tables.put(tables.bound, machine.id, instance_id)
        tables.put(tables.attempts, (instance_id, 1), attempt)
        tables.put(tables.tags, str(tag), (instance_id, 1))
        tables.put(tables.claims, ("user", name), ClaimRow(name, instance_id))
        for event in _history(instance_id, since):
            tables.put(tables.events, (instance_id, event.sequence), event)
        tables.put(tables.observations, machine.id, sighting_row(ObservedMachine(seen, since, since)))
    evidence.bound_at_s[machine.id] = evidence.listed_at_s[machine.id] = -INSTANCE_AGE.total_seconds()
    evidence.accepted.append(Accepted("create", instance_id, -INSTANCE_AGE.total_seconds(), name))
    return instance_id


def _rent(world: World, name: str, tag: str) -> SimulatedMachine:
    machine = world.machines[world.create(_request(name, tag))]
    machine.created_at -= INSTANCE_AGE.total_seconds()
    machine.turns = [StatusChange(machine.created_at, "running")]
    machine.app_up_at = machine.created_at
    return machine


def _request(name: str, tag: str) -> CreateRequest:
    return read_create_request(
        {
            "name": name,
            "productId": PRODUCT_ID,
            "clusterId": CLUSTER_ID,
            "gpuNum": 1,
            "rootfsSize": 60,
            "ports": "22/tcp",
            "billingMode": "spot",
            "imageUrl": IMAGE,
            "envs": [{"key": TAG_VARIABLE, "value": tag}],
        }
    )


def _instance(instance_id: str, name: str, machine: domain.Machine, since: datetime) -> Instance:
    return Instance(
        id=instance_id,
        name=name,
        wish=Herd.wish,
        goal=Goal.RUNNING,
        status=Status.RUNNING,
        created_at=since,
        deadline=since + INSTANCE_AGE,
        estimated_ready_at=since,
        cloud_id=machine.cloud_id,
        ports=machine.ports,
        connection=machine.connection,
        rental=Rental(PRODUCT_ID, PRODUCT, REGION, CLUSTER_ID, Decimal("0.2"), IMAGE),
        tag_verified=True,
        started_at=since,
        ready_at=since,
        settled=True,
        sequence=3,
    )


def _history(instance_id: str, since: datetime) -> tuple[Event, ...]:
    return (
        Event(instance_id, 1, instance_event.CREATED, since, after=Status.CREATING.value),
        Event(instance_id, 2, "instance.running", since, before="creating", after="running"),
        Event(instance_id, 3, instance_event.READY, since),
    )
