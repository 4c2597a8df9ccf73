"""Why an instance is as it is: what was weighed, tried and waited for."""

from gpuherd.contract.why import Considered, LineageMember, RankedOffer, Sentence, StatusPhase, Waiting, Why

__all__ = ["Considered", "LineageMember", "RankedOffer", "Sentence", "StatusPhase", "Waiting", "Why"]
