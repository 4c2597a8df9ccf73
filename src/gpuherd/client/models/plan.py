"""Plans: what a create would do, before it is done."""

from gpuherd.contract.plan import EstimateBasis, HeldPlan, Plan, PlannedOffer, PlanReason, RefusedOffer

__all__ = ["EstimateBasis", "HeldPlan", "Plan", "PlanReason", "PlannedOffer", "RefusedOffer"]
