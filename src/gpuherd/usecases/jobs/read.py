"""Read jobs: what is done in the background, page by page, and in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.ports.jobs import JobPage, JobQuery, Jobs, JobStats


@dataclass(frozen=True)
class ReadJobs:
    """Of one owner, or of everybody."""

    jobs: Jobs

    async def page(self, query: JobQuery) -> JobPage:
        """Return jobs, newest first."""
        return await self.jobs.page(query)

    async def stats(self, owner: str | None) -> JobStats:
        """Count the jobs by status and by kind."""
        return await self.jobs.stats(owner)
