"""References of images, and the registry that one names."""

from __future__ import annotations

import pytest

from gpuherd.domain.instance.launch_spec import image_problem, registry_of

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
            assert image_problem(image) is None


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
        with subtests.test(image=image):
            assert image_problem(image)


def test_the_registry_is_the_host_of_an_image(subtests: pytest.Subtests) -> None:
    for image, registry in [
        ("ubuntu", "docker.io"),
        ("pytorch/pytorch", "docker.io"),
        ("docker.io/pytorch/pytorch", "docker.io"),
        ("GHCR.io/a/b", "ghcr.io"),
        ("localhost/a", "localhost"),
        ("host:5000/a", "host:5000"),
    ]:
        with subtests.test(image=image, registry=registry):
            assert registry_of(image) == registry
