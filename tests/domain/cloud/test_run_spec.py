"""What runs: a template, with what is given instead of parts of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuherd.domain.cloud.template import (
    NO_TEMPLATE,
    Template,
    TemplateUnusable,
    replaced_parts,
    run_spec,
    with_envs,
)
from gpuherd.domain.errors import InvalidRequest
from gpuherd.domain.instance.launch_spec import NO_INPUTS, GivenInputs, OpenedEnv
from gpuherd.domain.secret import Secret

TEMPLATE = Template(
    template_id="101",
    name="torch",
    image="ghcr.io/team/torch:1",
    registry_auth_id="team",
    command="serve",
    entrypoint="/bin/sh",
    ports=((8888, "http"),),
    envs=(("A", "1"), ("B", "2")),
    min_cuda_version="12.1",
)


def given(**inputs: Any) -> GivenInputs:
    return replace(NO_INPUTS, **inputs)


def test_without_anything_else_the_template_runs() -> None:
    assert run_spec(TEMPLATE, NO_INPUTS) == TEMPLATE


def test_what_is_given_wins_and_the_rest_is_the_templates() -> None:
    inputs = given(command="train", ports=("22/tcp",), min_cuda_version="12.4", registry_auth_id="mine")
    assert run_spec(TEMPLATE, inputs) == replace(
        TEMPLATE, command="train", ports=((22, "tcp"),), min_cuda_version="12.4", registry_auth_id="mine"
    )


def test_no_ports_are_other_ports_than_those_of_the_template() -> None:
    assert run_spec(TEMPLATE, given(ports=())).ports == ()


def test_an_image_runs_without_a_template() -> None:
    spec = run_spec(NO_TEMPLATE, given(image_url="ubuntu"))
    assert (spec.image, spec.registry_auth_id, spec.ports) == ("ubuntu", "", ())


def test_without_an_image_nothing_runs() -> None:
    with pytest.raises(TemplateUnusable, match="what is to run cannot be used: it names no image"):
        run_spec(NO_TEMPLATE, NO_INPUTS)


@pytest.mark.parametrize(("image", "auth"), [("ghcr.io/other/x", "team"), ("evil.example/team/torch", "")])
def test_the_credential_of_a_template_goes_to_no_other_registry(image: str, auth: str) -> None:
    assert run_spec(TEMPLATE, given(image_url=image)).registry_auth_id == auth


def test_what_the_template_says_instead_can_be_told() -> None:
    inputs = given(image_url="evil.example/x", command="train", ports=("8888/http",), env_names=("B", "C"))
    assert replaced_parts(TEMPLATE, run_spec(TEMPLATE, inputs), inputs) == {
        "image_url": "ghcr.io/team/torch:1",
        "command": "serve",
        "registry_auth_id": "team",
        "envs": ("B",),
    }
    assert replaced_parts(TEMPLATE, TEMPLATE, NO_INPUTS) == {}


def test_variables_are_merged_by_name_and_the_given_ones_win() -> None:
    merged = with_envs(TEMPLATE, [OpenedEnv("B", Secret("mine")), OpenedEnv("C", Secret("3"))])
    assert dict(merged.envs) == {"A": "1", "B": "mine", "C": "3"}


def test_template_and_wish_together_have_no_more_variables_than_the_cloud_takes() -> None:
    many = [OpenedEnv(f"V{n}", Secret("x")) for n in range(99)]
    names = tuple(it.name for it in many)
    run_spec(TEMPLATE, given(env_names=("A", *names[1:])))
    # Already where only the names are known.
    with pytest.raises(InvalidRequest, match="there are 101 variables, 100 are allowed"):
        run_spec(TEMPLATE, given(env_names=names))
    with pytest.raises(TemplateUnusable, match="more than 100"):
        with_envs(TEMPLATE, many)
