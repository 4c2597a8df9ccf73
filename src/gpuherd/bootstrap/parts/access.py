"""Keys, sessions, the audit log, and requests that are made twice."""

from __future__ import annotations

from gpuherd.bootstrap.ports import Ports, Values
from gpuherd.entrypoints.plane import KeyServices
from gpuherd.usecases.access.answer_once import AnswerOnce
from gpuherd.usecases.access.audit_trail import AuditTrail
from gpuherd.usecases.access.claim_request import ClaimRequest
from gpuherd.usecases.access.key_cache import ApiKeyCache
from gpuherd.usecases.access.manage_keys import ManageKeys
from gpuherd.usecases.access.sessions import Sessions
from gpuherd.usecases.webhooks.key_secrets import KeyWebhookSecrets


def build_keys(ports: Ports, values: Values) -> KeyServices:
    """Return everything about keys, ready to be asked."""
    stores, clock = ports.stores, ports.clock
    key_cache = ApiKeyCache(stores.keys, values.admin_key, clock, stores.shared_limits)
    return KeyServices(
        key_cache=key_cache,
        manage=ManageKeys(stores.keys, key_cache, clock, ports.rng, ports.ids, values.webhook_keys),
        audit=AuditTrail(stores.audit, clock),
        claim_request=ClaimRequest(ports.sealer),
        answer_once=AnswerOnce(stores.claims),
        sessions=Sessions(
            values.admin_key,
            stores.ended_sessions,
            clock,
            ports.ids,
            rounds=values.session_stretching_rounds,
        ),
    )


def build_key_secrets(ports: Ports, values: Values, key_cache: ApiKeyCache) -> KeyWebhookSecrets:
    """Return the secrets that sign for a key's own receivers."""
    return KeyWebhookSecrets(
        keys=ports.stores.keys,
        known_key=key_cache.find,
        refresh_keys=key_cache.refresh,
        ring=values.webhook_keys,
        clock=ports.clock,
        ids=ports.ids,
        common=values.common_webhook_secrets,
        also_common=values.sign_with_common,
    )
