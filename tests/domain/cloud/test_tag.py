"""Whatever people call their machine, we find our tag on it again, and never take another for ours."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuherd.contract.launch_models import TAG_SEPARATOR
from gpuherd.domain.instance.rent_attempt import (
    ATTEMPT_MAX,
    TAG_PREFIX,
    Tag,
    cloud_name,
    parse_tag,
    plain_name,
)

KEY = "01kdvdna00sngxhwbavy8vep2a"
TAG = Tag("a1b2c3d4", KEY, 1)
TEXT = f"gh1-a1b2c3d4-{KEY}-1"

alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
tags = st.builds(
    Tag,
    st.text(alphabet, min_size=8, max_size=8),
    st.text(alphabet, min_size=26, max_size=26),
    st.integers(1, ATTEMPT_MAX),
    # Tags of before 0.2.0 have none.
    st.one_of(st.just(""), st.text(alphabet, min_size=6, max_size=6)),
)
# Other people's tags, whole and broken, inside a name.
look_alikes = st.builds(
    lambda before, tag, after: f"{before}--{tag}{after}", st.text(max_size=20), tags, st.text(max_size=20)
)
names = st.one_of(
    st.text(),
    st.text(min_size=300, max_size=300),
    st.text(alphabet + "-", max_size=300),
    st.text("-ÄÖ漢 ", max_size=300),
    look_alikes,
)


@settings(deadline=None, max_examples=300)
@given(names, tags)
@example("", TAG)
@example("---", TAG)
@example("漢字", TAG)
@example("x" * 179 + "-" + "y", TAG)
@example(f"job--{TEXT}", Tag("zzzzzzzz", "z" * 26, 9999))
@example("job", Tag("zzzzzzzz", "z" * 26, 10000))
@example("x" * 300, Tag("zzzzzzzz", "z" * 26, ATTEMPT_MAX))
@example(f"job--{TEXT}", TAG)
def test_a_tag_is_read_back_from_under_any_name(name: str, tag: Tag) -> None:
    called = cloud_name(name, tag)
    assert parse_tag(called) == tag
    assert str(parse_tag(called)) == str(tag)


@settings(deadline=None, max_examples=300)
@given(names, tags)
def test_the_cloud_takes_every_name_that_we_make(name: str, tag: Tag) -> None:
    called = cloud_name(name, tag)
    assert re.fullmatch(r"[a-z0-9-]+", called)
    assert len(called) <= 255
    assert called[0] != "-"


@settings(deadline=None)
@given(names, tags, tags)
def test_people_are_shown_the_name_without_the_tag(name: str, tag: Tag, other: Tag) -> None:
    shown = plain_name(cloud_name(name, tag))
    assert f"{shown}--{tag}" == cloud_name(name, tag)
    assert shown == plain_name(cloud_name(name, other)), "the name does not depend on the tag"
    assert 0 < len(shown) <= 180


@settings(deadline=None)
@given(tags, tags)
def test_two_attempts_never_share_a_tag(one: Tag, other: Tag) -> None:
    assert (str(one) == str(other)) is (one == other)


def test_a_name_is_cleaned_and_cut(subtests: pytest.Subtests) -> None:
    for case, name, shown in [
        ("as it is", "job-7", "job-7"),
        ("lower case, one dash for what is not allowed", "Big Job #7", "big-job-7"),
        ("dashes inside stay, around it go", "  --job--7-- ", "job--7"),
        ("folded", "Straße", "strasse"),
        ("accents", "naïve café", "na-ve-caf"),
        ("empty", "", "gpu"),
        ("nothing left of it", "漢字", "gpu"),
        ("cut", "x" * 300, "x" * 180),
        ("dashes in front do not use up the space", "-" * 200 + "job", "job"),
        ("no dash where it is cut", "x" * 179 + "--y", "x" * 179),
        ("somebody else's tag is only a name", f"a--{TEXT}", f"a--{TEXT}"),
    ]:
        with subtests.test(case):
            assert cloud_name(name, TAG) == f"{shown}--{TEXT}"
            assert plain_name(f"{shown}--{TEXT}") == shown


def test_what_only_looks_like_a_tag_is_none(subtests: pytest.Subtests) -> None:
    for case, name in [
        ("empty", ""),
        ("no tag", "job"),
        ("no name and no separator", TEXT),
        ("one dash", f"job-{TEXT}"),
        ("something before the mark", f"job--x{TEXT}"),
        ("something after it", f"job--{TEXT}-copy"),
        ("space after it", f"job--{TEXT} "),
        ("line break after it", f"job--{TEXT}\n"),
        ("upper case", f"job--{TEXT.upper()}"),
        ("one letter in upper case", f"job--{TEXT.replace('a1b2c3d4', 'A1b2c3d4')}"),
        ("another mark", f"job--ng1-a1b2c3d4-{KEY}-1"),
        ("a later mark", f"job--gh2-a1b2c3d4-{KEY}-1"),
        ("installation too short", f"job--gh1-a1b2c3d-{KEY}-1"),
        ("installation too long", f"job--gh1-a1b2c3d4e-{KEY}-1"),
        ("key too short", f"job--gh1-a1b2c3d4-{KEY[:-1]}-1"),
        ("key too long", f"job--gh1-a1b2c3d4-{KEY}z-1"),
        ("no attempt", f"job--gh1-a1b2c3d4-{KEY}"),
        ("empty attempt", f"job--gh1-a1b2c3d4-{KEY}-"),
        ("attempts are counted from 1", f"job--gh1-a1b2c3d4-{KEY}-0"),
        ("leading zero", f"job--gh1-a1b2c3d4-{KEY}-01"),
        ("attempt too long", f"job--gh1-a1b2c3d4-{KEY}-1234567890"),
        ("attempt is no number", f"job--gh1-a1b2c3d4-{KEY}-x"),
        ("empty nonce", f"job--gh1-a1b2c3d4-{KEY}-1-"),
        ("nonce too short", f"job--gh1-a1b2c3d4-{KEY}-1-abcde"),
        ("nonce too long", f"job--gh1-a1b2c3d4-{KEY}-1-abcdefg"),
        ("nonce in upper case", f"job--gh1-a1b2c3d4-{KEY}-1-abcdeF"),
        ("a digit of another script", f"job--gh1-a1b2c3d4-{KEY}-１"),
        ("a letter of another script", f"job--gh1-a1b2c3dé-{KEY}-1"),
    ]:
        with subtests.test(case):
            assert parse_tag(name) is None
            assert plain_name(name) == name


@pytest.mark.parametrize("name", [f"--{TEXT}", f"Anything Else--{TEXT}", f"two\nlines--{TEXT}"])
def test_only_the_end_of_a_name_counts(name: str) -> None:
    assert parse_tag(name) == TAG


def test_the_separator_is_what_users_may_not_write() -> None:
    assert f"--{TAG}".startswith(TAG_SEPARATOR)
    assert str(TAG).startswith(f"{TAG_PREFIX}-")
