"""A handler of jobs whose turns are told as spans."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.jobs.job import Job
from gpuherd.jobs.outcome import Outcome
from gpuherd.ports.tracing.tracer import Tracer
from gpuherd.usecases.jobs.kinds import CHECK_HEALTH
from gpuherd.usecases.jobs.run import Handler

HEALTH_ROUND = "health round"
TURN = "turn"


@dataclass(frozen=True)
class TracedHandler:
    """Any handler; calls to the cloud on the way are parts of its turn."""

    handler: Handler
    tracer: Tracer

    async def __call__(self, job: Job) -> Outcome:
        # That an application was asked is worth telling whatever it said.
        is_round = job.kind == CHECK_HEALTH
        with self.tracer.turn(HEALTH_ROUND if is_round else TURN, is_kept=is_round) as turn:
            outcome = await self.handler(job)
            turn.note("gpuherd.job.kind", job.kind)
            turn.note("gpuherd.outcome", type(outcome).__name__.lower())
            return outcome
