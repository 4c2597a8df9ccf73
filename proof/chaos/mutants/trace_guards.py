"""The guards of traces: what is told of work never changes what becomes of it, and memory stays bounded."""

from __future__ import annotations

from proof.chaos.mutants.safeguard import Safeguard

LEASES = "tests/adapters/tracing/test_traced_leases.py"
QUEUE = "tests/adapters/tracing/test_span_queue.py"
TRACER = "tests/adapters/tracing/test_otel_tracer.py"
_LEASES, _QUEUE, _TRACER = (
    f"adapters/tracing/{it}.py" for it in ("traced_leases", "span_queue", "otel_tracer")
)

TRACES = (
    Safeguard(
        "what is saved is saved whatever is wrong with its spans",
        _LEASES,
        "        with contextlib.suppress(Exception):\n            self._tell(",
        "        if True:\n            self._tell(",
        (f"{LEASES}::test_what_is_saved_is_saved_whatever_is_wrong_with_its_spans",),
    ),
    Safeguard(
        "an instance is leased whatever is wrong with its spans",
        _LEASES,
        "            with contextlib.suppress(Exception):\n                self._follow_boot(",
        "            if True:\n                self._follow_boot(",
        (f"{LEASES}::test_an_instance_is_leased_whatever_is_wrong_with_its_spans",),
    ),
    Safeguard(
        "no error of a tracer reaches the work",
        _TRACER,
        "        except Exception:  # whatever is wrong with a span, the work that it tells of was done\n"
        "            self._queue.count_dropped()\n",
        "        except KeyboardInterrupt:\n            self._queue.count_dropped()\n",
        (f"{TRACER}::test_what_fails_in_a_tracer_is_counted_and_reaches_nobody",),
    ),
    Safeguard(
        "spans that nobody takes fill no memory",
        _QUEUE,
        "        if count + self._sending >= self._room:\n",
        "        if False:\n",
        (f"{QUEUE}::test_a_full_queue_takes_no_more_and_nobody_waits",),
    ),
)
