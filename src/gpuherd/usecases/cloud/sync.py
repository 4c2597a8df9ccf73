"""Sync: look at the cloud now, because somebody does not want to wait for the next look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuherd.domain.errors import CloudError, CloudUnavailable, LeadershipLost
from gpuherd.usecases.cloud.observe import ListResult, ObserveCloud


@dataclass(frozen=True)
class SyncCloud:
    """One look of the observer, out of turn."""

    observer: ObserveCloud
    # Throws away what was remembered of earlier lists.
    forget: Callable[[], None]

    async def __call__(self) -> ListResult:
        """Return what was seen; `CloudUnavailable` if the cloud cannot be asked, for whatever reason."""
        try:
            look = await self.observer.sync()
        except CloudUnavailable:
            raise
        except LeadershipLost as error:
            raise CloudUnavailable(f"{error.message}; ask again", retry_after_s=1.0) from error
        except CloudError as error:
            raise CloudUnavailable(error.message, code=error.code) from error
        self.forget()
        return look
