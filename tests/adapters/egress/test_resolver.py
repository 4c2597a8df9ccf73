"""The system's resolver, as far as it can be asked without a network."""

from __future__ import annotations

import pytest

from gpuherd.adapters.egress.resolver import SystemResolver


async def test_each_address_comes_once() -> None:
    answers = await SystemResolver().resolve("localhost", 80)
    assert "127.0.0.1" in answers or "::1" in answers
    assert len(answers) == len(set(answers))


@pytest.mark.parametrize("name", ["a" * 64 + ".example.com", "a..b"])
async def test_a_name_that_cannot_be_looked_up_is_an_os_error(name: str) -> None:
    with pytest.raises(OSError):
        await SystemResolver().resolve(name, 80)
