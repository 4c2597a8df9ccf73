"""The registry that the reference of an image names."""

from __future__ import annotations

import pytest

from gpuherd.domain.instance.launch_spec import registry_of


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
