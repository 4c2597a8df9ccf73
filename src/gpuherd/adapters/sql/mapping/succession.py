"""What an instance keeps of its replacement; most have none, and need no room for it."""

from __future__ import annotations

from gpuherd.adapters.sql.engine.columns import Doc, at, moment
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.succession.chain import NO_REPLACEMENT, Chain, ReplacePolicy


def succession_doc(it: Instance) -> Doc:
    """Return how the replacement of an instance is kept."""
    doc: Doc = {}
    if it.replacement != NO_REPLACEMENT:
        doc["replacement"] = it.replacement.as_doc()
    if it.chain is not None:
        doc["chain"] = it.chain.as_doc()
    if it.look_at is not None:
        doc["look_at"] = at(it.look_at)
    return doc


def succession_of(doc: Doc) -> Doc:
    """Return the fields that were kept."""
    replacement, chain = doc.get("replacement"), doc.get("chain")
    return {
        "replacement": NO_REPLACEMENT if replacement is None else ReplacePolicy.from_doc(replacement),
        "chain": None if chain is None else Chain.from_doc(chain),
        "look_at": moment(doc.get("look_at")),
    }
