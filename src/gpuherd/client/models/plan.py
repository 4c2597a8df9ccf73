"""Plans: what a create would do, before it is done."""

from gpuherd.contract.plan import EstimateBasis, Plan, PlannedOffer, PlanReason, RefusedOffer

__all__ = ["EstimateBasis", "Plan", "PlanReason", "PlannedOffer", "RefusedOffer"]
