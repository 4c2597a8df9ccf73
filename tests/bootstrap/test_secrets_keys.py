"""Which keys seal and open: an upgrade starts without one, and replicas never make one each."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuherd.bootstrap.key_files import SECRETS_KEY_FILE, secrets_keys
from gpuherd.domain.secret import Secret
from gpuherd.settings import Settings, SettingsInvalid, load_settings

NEW, OLD = "n" * 32, "o" * 32


def settings(directory: Path, **more: str) -> Settings:
    return load_settings({"GPUHERD_DATA_DIR": str(directory), **more}, directory)


def test_on_a_file_of_our_own_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    (key,) = secrets_keys(settings(tmp_path), may_make=True)
    assert (tmp_path / SECRETS_KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert secrets_keys(settings(tmp_path), may_make=True) == (key,)
    assert len(key.reveal()) >= 32


def test_a_replica_makes_none_of_its_own_but_uses_the_file_that_was_put_there(tmp_path: Path) -> None:
    assert secrets_keys(settings(tmp_path), may_make=False) == ()
    assert not (tmp_path / SECRETS_KEY_FILE).exists()
    made = secrets_keys(settings(tmp_path), may_make=True)
    assert secrets_keys(settings(tmp_path), may_make=False) == made


def test_a_configured_key_seals_and_the_earlier_ones_still_open(tmp_path: Path) -> None:
    (file_key,) = secrets_keys(settings(tmp_path), may_make=True)
    changed = settings(tmp_path, GPUHERD_SECRETS_KEY=NEW, GPUHERD_SECRETS_KEY_PREVIOUS=OLD)
    assert secrets_keys(changed, may_make=True) == (Secret(NEW), Secret(OLD), file_key)


@pytest.mark.parametrize(
    "wrong", [{"GPUHERD_SECRETS_KEY": "short"}, {"GPUHERD_SECRETS_KEY_PREVIOUS": OLD}], ids=str
)
def test_a_key_that_can_be_guessed_or_has_no_successor_is_refused(
    tmp_path: Path, wrong: dict[str, str]
) -> None:
    with pytest.raises(SettingsInvalid, match="GPUHERD_SECRETS_KEY"):
        settings(tmp_path, **wrong)
