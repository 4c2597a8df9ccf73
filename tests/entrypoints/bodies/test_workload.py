"""What may run: every problem at once, with a code each, and never a value."""

from __future__ import annotations

from typing import Any

import pytest

from gpuherd.contract.launch_models import LaunchBody
from gpuherd.contract.workload_models import checked_image, variable_problem
from gpuherd.domain.errors import InvalidRequest
from gpuherd.entrypoints.body_problems import validate_body
from gpuherd.usecases.instances.launch_spec_from_body import launch_request_of
from tests.entrypoints.http.conftest import GOOD

CANARY = "canary of a value"
BARE = {key: value for key, value in GOOD.items() if key != "templateId"}


def problems(**fields: Any) -> list[tuple[str, str, str]]:
    with pytest.raises(InvalidRequest) as caught:
        validate_body(LaunchBody, {**GOOD, **fields})
    return [(it.field, it.code, it.message) for it in caught.value.problems]


def test_an_image_is_enough() -> None:
    body = validate_body(LaunchBody, {**BARE, "imageUrl": "ubuntu", "envs": {"A": CANARY}})
    wanted = launch_request_of(body)
    assert (wanted.wish.template_id, wanted.wish.image_url, wanted.wish.envs) == ("", "ubuntu", ())
    assert [(it.name, it.value and it.value.reveal()) for it in wanted.envs] == [("A", CANARY)]
    assert CANARY not in repr(wanted)
    assert CANARY not in repr(body)


def test_without_template_and_image_there_is_nothing_to_run() -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate_body(LaunchBody, BARE)
    (problem,) = caught.value.problems
    assert (problem.field, problem.code) == ("templateId", "INVALID_TEMPLATE_ID")
    assert problem.message == "templateId: must be given, or an imageUrl"


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("imageUrl", "https://docker.io/x", "INVALID_IMAGE"),
        ("imageUrl", None, "INVALID_IMAGE"),
        ("command", " ", "INVALID_COMMAND"),
        ("command", "x" * 2048, "INVALID_COMMAND"),
        ("command", "a\0b", "INVALID_COMMAND"),
        ("ports", ["8888"], "INVALID_PORTS"),
        ("ports", ["2222/tcp"], "INVALID_PORTS"),
        ("ports", ["0/tcp"], "INVALID_PORTS"),
        ("ports", ["80/udp"], "INVALID_PORTS"),
        ("ports", ["80/http", "80/tcp"], "INVALID_PORTS"),
        ("ports", [f"{n}/tcp" for n in range(1, 17)], "INVALID_PORTS"),
        ("ports", "80/http", "INVALID_PORTS"),
        ("minCudaVersion", "12", "INVALID_MIN_CUDA_VERSION"),
        ("registryAuthId", "", "INVALID_REGISTRY_AUTH_ID"),
        ("envs", [CANARY], "INVALID_ENVS"),
        ("envs", {CANARY: "x"}, "INVALID_ENVS"),
        ("envs", {"A": 5}, "INVALID_ENVS"),
        ("envs", {"A": CANARY * 500}, "INVALID_ENVS"),
        ("envs", {"A": "a\0b"}, "INVALID_ENVS"),
        ("envs", {"A": "a\ud800"}, "INVALID_ENVS"),
        ("envs", {"GPUHERD_TAG": CANARY}, "INVALID_ENVS"),
        ("envs", {f"V{n}": CANARY for n in range(100)}, "INVALID_ENVS"),
        ("envs", None, "INVALID_ENVS"),
    ],
)
def test_what_the_cloud_would_refuse_is_refused_with_a_code(field: str, value: Any, code: str) -> None:
    (problem,) = problems(**{field: value})
    assert problem[:2] == (field, code)
    assert CANARY not in problem[2]


def test_all_problems_come_at_once() -> None:
    found = problems(imageUrl="a b", ports=["x"], envs={"1": "x", "B": 7})
    assert {code for _, code, _ in found} == {"INVALID_IMAGE", "INVALID_PORTS", "INVALID_ENVS"}
    (envs,) = [message for field, _, message in found if field == "envs"]
    assert "variable 1" in envs
    assert "B must be a text" in envs


def test_these_are_names(subtests: pytest.Subtests) -> None:
    for name in ["A", "_x", "HF_TOKEN", "a.b-c", "A" * 511]:
        with subtests.test(name=name):
            assert variable_problem(name) is None


def test_these_are_no_names_and_are_not_repeated(subtests: pytest.Subtests) -> None:
    for name in ["", "1A", "A=B", "A B", "Ä", "A\n", "A" * 512]:
        with subtests.test(name=name):
            assert variable_problem(name)
            assert not name or name not in str(variable_problem(name))


@pytest.mark.parametrize("name", ["GPUHERD_TAG", "gpuherd_tag"])
def test_the_tag_cannot_be_set(name: str) -> None:
    assert "gpuherd finds its machines by it" in str(variable_problem(name))


DIGEST = "sha256:" + "0a" * 32


def test_these_are_images(subtests: pytest.Subtests) -> None:
    for image in [
        "ubuntu",
        "pytorch/pytorch:2.4.0-cuda12.4",
        "docker.io/pytorch/pytorch:latest",
        "registry.example.com:5000/team/my_image__x.y-z:v1_2",
        f"ghcr.io/a/b@{DIGEST}",
        f"ghcr.io/a/b:1@{DIGEST}",
    ]:
        with subtests.test(image=image):
            assert checked_image(image) == image


def test_these_are_no_images(subtests: pytest.Subtests) -> None:
    for image in [
        "",
        " ",
        "a b",
        "https://docker.io/a",
        "a:",
        "a@sha256:12",
        "Upper/Case",
        "a//b",
        "a;b",
        "-a",
        "x" * 501,
    ]:
        with subtests.test(image=image), pytest.raises(ValueError, match="must"):
            checked_image(image)


def test_json_names_fields_by_alias_only() -> None:
    assert [(field, code) for field, code, _ in problems(gpu_num=1)] == [("gpu_num", "UNKNOWN_FIELD")]
