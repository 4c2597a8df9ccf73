"""References of container images, as Docker writes them."""

from __future__ import annotations

import re

IMAGE_CHARS_MAX = 500
DOCKER_HUB = "docker.io"

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?"
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)


def image_problem(image: str) -> str | None:
    """Return what is wrong with the reference of an image."""
    if len(image) > IMAGE_CHARS_MAX:
        return f"must not be longer than {IMAGE_CHARS_MAX} characters"
    if "://" in image:
        return "must be without a scheme, like docker.io/pytorch/pytorch:latest"
    if not _IMAGE.fullmatch(image):
        return "must be the reference of an image, like docker.io/pytorch/pytorch:latest"
    return None


def registry_of(image: str) -> str:
    """Return the host from which an image is pulled."""
    first, slash, _ = image.partition("/")
    is_host = slash and ("." in first or ":" in first or first == "localhost")
    return first.casefold() if is_host else DOCKER_HUB
