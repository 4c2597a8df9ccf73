"""Why an instance is as it is: what was weighed, tried and waited for."""

from gpuherd.contract.why import Considered, RankedOffer, Sentence, StatusPhase, Waiting, Why

__all__ = ["Considered", "RankedOffer", "Sentence", "StatusPhase", "Waiting", "Why"]
