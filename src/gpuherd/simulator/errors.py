"""The ways in which a call to the simulated cloud can end badly, told apart so that both faces can show them.

SimulatedError    the cloud answered, and the answer is an error
ConnectionCut     no answer came; only `committed` knows whether the work was done
GarbageReply      the work was done, and an answer came that makes no sense
"""

from __future__ import annotations

from collections.abc import Mapping


class SimulatedError(Exception):
    """An error reply as Novita words it: HTTP status, reason, message."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        from_gateway: bool = False,
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.headers = dict(headers or {})
        # The proxy in front of Novita answers with a page for people, not with their JSON.
        self.from_gateway = from_gateway


class ConnectionCut(Exception):
    """The connection died before an answer came."""

    def __init__(self, *, committed: bool) -> None:
        super().__init__("the connection was cut")
        self.committed = committed


class GarbageReply(Exception):
    """An answer with status 200 and the wrong words; `result` is what it should have said."""

    def __init__(self, style: str, result: object) -> None:
        super().__init__(f"the answer is garbage ({style})")
        self.style = style
        self.result = result


def invalid(field: str, problem: str) -> SimulatedError:
    return SimulatedError(400, "VALIDATOR_PARAM", f"invalid parameter {field}: {problem}")


def instance_not_found(instance_id: str) -> SimulatedError:
    # The documents say 400 for this reason; for instances the live API answers 404.
    return SimulatedError(404, "RESOURCE_NOT_FOUND", f"instance {instance_id} not found")


def not_found(what: str) -> SimulatedError:
    return SimulatedError(400, "RESOURCE_NOT_FOUND", f"{what} not found")


def invalid_state(action: str, status: str) -> SimulatedError:
    return SimulatedError(400, "REQUEST", f"invalid state change: cannot {action} while {status}")


def insufficient_resource(product_id: str) -> SimulatedError:
    return SimulatedError(400, "INSUFFICIENT_RESOURCE", f"insufficient resource for product {product_id}")
