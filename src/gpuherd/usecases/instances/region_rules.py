"""Where to look for an offer: the regions that the user names, else the configured order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuherd.domain.cloud.offer import Region
from gpuherd.domain.instance.instance import Optimize
from gpuherd.usecases.cloud.catalogue import known_codes, region_codes


@dataclass(frozen=True)
class RegionRules:
    """Where to look when the user does not say: the preferred region, then the others in order."""

    preferred: str | None
    priority: tuple[str, ...]

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
        _check(region, regions, known)
        # The configured order may name regions that this account does not have; the user's may not.
        return () if anywhere else known_codes(words, known)


def _check(region: str | None, regions: Sequence[str] | None, known: tuple[Region, ...]) -> None:
    if region is not None:
        region_codes([region], known, "region")
    if regions is not None:
        region_codes(regions, known, "regions")
