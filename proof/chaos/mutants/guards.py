"""All guards: their names, how each is taken out, and which tests must then fail."""

from __future__ import annotations

from proof.chaos.mutants.guards_of_machines import MACHINES
from proof.chaos.mutants.guards_of_money import MONEY
from proof.chaos.mutants.guards_of_renting import RENTING
from proof.chaos.mutants.guards_of_service import SERVICE

GUARDS = (*RENTING, *MACHINES, *MONEY, *SERVICE)
