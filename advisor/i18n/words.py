"""Words and composed sentences that the source does not spell out in one piece.

Two kinds of texts cannot be found where they are built: single words of small letters (values of
types and fields that pages print), and sentences joined from parts whose translation needs another
order. They stand here, so that the catalogue has them. A test asks nothing of them: what is built
differently tomorrow falls back to its parts.
"""

from __future__ import annotations

WORDS = (
    *("measured", "predicted", "simulated", "estimated", "assumed", "exact", "formula"),
    *("better", "worse", "high", "medium", "low", "yes", "no", "on", "off", "none"),
    *("chat", "batch", "edge", "api", "current", "candidate", "baseline", "verify"),
    *("met", "missed", "passed", "failed", "failing", "passing", "running", "waiting", "done"),
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("the target", "both targets", "changing"),
    *("mean", "peak", "gaps", "steps", "runs", "warning", "minutes", "hours"),
    *("to", "from", "reading", "readings", "Trade-off", "Warm-up", "process"),
    *("batching", "calibrate", "quantisation", "robustness", "serve", "profile", "tensor_parallel"),
    *("attention", "cost and energy", "kernels", "measurement", "memory", "parallelism"),
    *("precision", "scheduling", "stability", "targets"),
    "compiled",
    *("on-demand", "spot", "reserved", "marketplace", "community"),
)

# Who meets how many targets under which load, by how much: the headline of a study.
_WHO = ("Trial {0} meets {1}", "The current settings meet {1}")
_LOAD = ("", " at {2}", " one request at a time", " with {2} requests in flight")
_MARGIN = ("", ": {3} of {4}", ": {3} instead of {4}")

COMPOSED = (
    *(f"{who}{load}{margin}" for who in _WHO for load in _LOAD for margin in _MARGIN),
    "{0} and {1} more",
    "Trial {0} at {1}: {2}",
    "{0} keeps all targets up to {1} instead of {2} with {3}",
    "{0} keeps all targets up to {1} instead of {2} with {3}; the brackets overlap",
    "{0} falls from {1} to {2} in trial {3}",
    "{0} rises from {1} to {2} in trial {3}",
    "One token takes {0} with {1} in flight and {2} with {3}",
    "The first token comes after {0} with {1} in flight and {2} with {3}",
)
