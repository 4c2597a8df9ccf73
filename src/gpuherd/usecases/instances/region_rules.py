"""Where to look for an offer: the regions that the user names, else the configured order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuherd.domain.cloud.offer import Region
from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.domain.instance.instance import Optimize
from gpuherd.usecases.cloud.catalogue import known_codes, unknown_regions

# A burst names the same regions over and over.
ORDERS_MAX = 256


@dataclass(frozen=True)
class RegionRules:
    """Where to look when the user does not say: the preferred region, then the others in order."""

    preferred: str | None
    priority: tuple[str, ...]
    # By the words: the codes, with the very list of regions in which they were looked up.
    _codes: dict[tuple[str, ...], tuple[tuple[Region, ...], tuple[str, ...]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def order(self, region: str | None, regions: tuple[str, ...] | None) -> tuple[str, ...]:
        """Return the regions to try, in the words they were given in, best first."""
        first = region or (self.preferred if regions is None else None)
        rest = self.priority if regions is None else regions
        # A dict keeps the order and each word once.
        return tuple(dict.fromkeys(((first,) if first else ()) + rest))

    def codes(
        self,
        region: str | None,
        regions: tuple[str, ...] | None,
        optimize: Optimize,
        known: tuple[Region, ...] | None,
    ) -> tuple[str, ...]:
        """Return the codes of the regions to try, best first; nothing means anywhere.

        A region of the user's that is not `known` is refused; while none is known, words stay as they are.
        """
        anywhere = optimize is Optimize.PRICE and regions is None
        if anywhere and region is None:
            return ()
        words = self.order(region, regions)
        if known is None:
            return words
        if problems := region_problems(region, regions, known):
            raise InvalidRequest(problems)
        # The configured order may name regions that this account does not have; the user's may not.
        return () if anywhere else self._known_codes(words, known)

    def _known_codes(self, words: tuple[str, ...], known: tuple[Region, ...]) -> tuple[str, ...]:
        kept = self._codes.get(words)
        if kept is not None and kept[0] is known:
            return kept[1]
        if len(self._codes) >= ORDERS_MAX:
            self._codes.clear()
        codes = known_codes(words, known)
        self._codes[words] = (known, codes)
        return codes


def region_problems(
    region: str | None, regions: Sequence[str] | None, known: tuple[Region, ...]
) -> list[FieldProblem]:
    """Return what is wrong with the regions that the user names."""
    named = unknown_regions(() if region is None else (region,), known, "region")
    return [*named, *unknown_regions(regions or (), known, "regions")]
