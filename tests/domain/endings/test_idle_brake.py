"""Those that may have become idle at one moment do not end when they are many; the others do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuherd.domain.blast_limit import IdleSpell, judge_spells

NOW, HOUR, MINUTE = 1_000_000.0, 3600.0, 60.0


def began(ago_s: float, *, is_seen: bool = True, found_s: float = NOW) -> IdleSpell:
    return IdleSpell(NOW - ago_s, is_seen, found_s, NOW, 1800.0)


def ending(
    *spells: IdleSpell, used_s: dict[str, float] | None = None, instances: int = 12
) -> tuple[int, bool]:
    """Return how many of those that have not ended may, and whether any is held."""
    by_key = {f"i-{n}": it for n, it in enumerate(spells)}
    over = [key for key, it in by_key.items() if not it.has_ended]
    verdict = judge_spells(over, by_key, used_s or {}, instances, NOW)
    return len(verdict.may_end), verdict.reason is not None


def test_those_whose_idleness_began_at_one_moment_are_held_when_they_are_many() -> None:
    assert ending(*[began(HOUR + n * MINUTE) for n in range(2)]) == (2, False)
    assert ending(*[began(HOUR + n * MINUTE) for n in range(3)]) == (0, True)
    assert ending(*[began(HOUR) for _ in range(10)], instances=100) == (10, False)
    assert ending(*[began(HOUR) for _ in range(11)], instances=100) == (0, True)


def test_those_that_became_idle_at_moments_of_their_own_end_as_many_at_once_as_the_brake_lets() -> None:
    spells = [began(HOUR + n * 6 * MINUTE) for n in range(6)]
    assert ending(*spells) == (2, False)
    ended = [replace(it, has_ended=True, looked_s=NOW - 4 * MINUTE) for it in spells[:2]]
    assert ending(*ended, *spells[2:]) == (0, False)
    ended = [replace(it, looked_s=NOW - 6 * MINUTE) for it in ended]
    assert ending(*ended, *spells[2:]) == (2, False)


def test_what_was_ended_counts_with_those_that_began_with_it() -> None:
    ended = [replace(began(HOUR), has_ended=True, looked_s=NOW - HOUR) for _ in range(2)]
    assert ending(*ended, began(HOUR)) == (0, True)
    assert ending(*ended, began(2 * HOUR)) == (1, False)


def test_a_beginning_that_nobody_saw_may_be_any_moment_before() -> None:
    unseen = [began(HOUR, is_seen=False) for _ in range(2)]
    assert ending(*unseen) == (2, False)
    assert ending(*unseen, began(5 * HOUR, is_seen=False)) == (0, True)
    assert ending(*unseen, began(2 * HOUR))[1], "it may have begun with them"
    assert not ending(*unseen, began(HOUR / 2))[1], "they were idle before it"


@pytest.mark.proves("E6")
def test_a_beginning_that_nobody_saw_lies_after_the_last_use_that_was_seen() -> None:
    ended = [replace(began(n * HOUR), has_ended=True, looked_s=NOW - n * HOUR) for n in range(4, 10)]
    unseen = began(HOUR, is_seen=False)
    assert ending(*ended, unseen) == (0, True)
    assert ending(*ended, replace(unseen, not_before_s=NOW - 3 * HOUR)) == (1, False), (
        "all had ended before that"
    )
    assert ending(*ended, replace(unseen, not_before_s=NOW - 6 * HOUR)) == (0, True), (
        "it may have begun with three"
    )


def test_beginnings_that_nobody_saw_are_told_apart_by_the_use_between_them() -> None:
    unseen = [
        replace(began(n * HOUR, is_seen=False), not_before_s=NOW - (n + 0.5) * HOUR) for n in range(1, 7)
    ]
    assert ending(*unseen) == (2, False)
    longer = [replace(it, not_before_s=NOW - 8 * HOUR) for it in unseen]
    assert ending(*longer) == (0, True), "they may all have begun at one moment"


def test_as_many_others_in_use_show_that_the_metrics_are_right() -> None:
    together = [began(HOUR) for _ in range(3)]
    during = {f"other-{n}": NOW - HOUR / 2 for n in range(3)}
    assert ending(*together, used_s=during) == (2, False)
    assert ending(*together, used_s=dict(list(during.items())[:2])) == (0, True)
    assert ending(*together, used_s=dict.fromkeys(during, NOW - HOUR)) == (0, True), "before, or just then"
    assert ending(*together, used_s={"i-0": NOW, "i-1": NOW, "i-2": NOW}) == (0, True), "not others"


def test_where_no_beginning_was_seen_only_use_since_they_were_found_says_anything() -> None:
    unseen = [began(HOUR, is_seen=False, found_s=NOW - 10 * MINUTE) for _ in range(3)]
    assert ending(*unseen, used_s={f"other-{n}": NOW - 20 * MINUTE for n in range(9)}) == (0, True)
    assert ending(*unseen, used_s={f"other-{n}": NOW - 5 * MINUTE for n in range(3)}) == (2, False)


def test_one_that_was_ended_counts_for_its_time_or_a_day_or_while_others_are_held() -> None:
    unseen = replace(began(HOUR, is_seen=False), has_ended=True)
    assert unseen.counts(NOW + 1799, is_braked=False) and not unseen.counts(NOW + 1801, is_braked=False)
    assert unseen.counts(NOW + 90 * HOUR, is_braked=True)
    seen = replace(began(HOUR), has_ended=True)
    assert seen.counts(NOW + 23 * HOUR, is_braked=False) and not seen.counts(NOW + 25 * HOUR, is_braked=True)
