"""References of images, and the registry that one names."""

from __future__ import annotations

import pytest

from gpuherd.domain.workload.image import image_problem, registry_of

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    "image",
    [
        "ubuntu",
        "pytorch/pytorch:2.4.0-cuda12.4",
        "docker.io/pytorch/pytorch:latest",
        "registry.example.com:5000/team/my_image__x.y-z:v1_2",
        f"ghcr.io/a/b@{DIGEST}",
        f"ghcr.io/a/b:1@{DIGEST}",
    ],
)
def test_these_are_images(image: str) -> None:
    assert image_problem(image) is None


@pytest.mark.parametrize(
    "image",
    [
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
    ],
)
def test_these_are_no_images(image: str) -> None:
    assert image_problem(image)


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("ubuntu", "docker.io"),
        ("pytorch/pytorch", "docker.io"),
        ("docker.io/pytorch/pytorch", "docker.io"),
        ("GHCR.io/a/b", "ghcr.io"),
        ("localhost/a", "localhost"),
        ("host:5000/a", "host:5000"),
    ],
)
def test_the_registry_is_the_host_of_an_image(image: str, registry: str) -> None:
    assert registry_of(image) == registry
