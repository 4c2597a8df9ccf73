"""The guards of what agents rent: a person's yes, or a strict budget, and an end."""

from __future__ import annotations

from proof.chaos.mutants.safeguard import Safeguard

RENTING = "tests/entrypoints/mcp/test_renting.py"
_CONFIRM = "entrypoints/mcp/confirm.py"

AGENTS = (
    Safeguard(
        "an agent spends nothing that a person did not say yes to",
        _CONFIRM,
        "    if not (isinstance(answer, AcceptedElicitation) and answer.data.confirmed):\n",
        "    if False:\n",
        (f"{RENTING}::test_nothing_is_rented_unless_the_person_said_yes",),
    ),
    Safeguard(
        "where an agent cannot ask only a strict budget stands in",
        _CONFIRM,
        "    if (await herd.keys.own()).strict_budget:\n",
        "    if True:\n",
        (f"{RENTING}::test_a_client_that_cannot_ask_is_refused_unless_a_strict_budget_holds",),
    ),
    Safeguard(
        "an agent asks for more time as it asks for a rental",
        "entrypoints/mcp/write_tools.py",
        '    require_yes(answer, "its end is as it was")\n',
        "",
        (f"{RENTING}::test_to_go_on_for_longer_is_asked_for_as_well",),
    ),
    Safeguard(
        "what an agent rents has an end",
        _CONFIRM,
        "        if plan.lease_seconds is None:\n",
        "        if False:\n",
        (f"{RENTING}::test_a_plan_without_a_lease_is_not_rented",),
    ),
    Safeguard(
        "texts of others are plain",
        "entrypoints/mcp/plain.py",
        '    visible = "".join(it if it.isprintable() else " " for it in text)\n',
        "    visible = text\n",
        ("tests/entrypoints/mcp/test_tools.py::test_what_others_wrote_stays_data",),
    ),
)
