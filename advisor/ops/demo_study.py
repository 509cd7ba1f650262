"""The study that `make demo` submits: chat traffic that a small CPU can meet or miss."""

from __future__ import annotations

from typing import Any


def demo_spec(model: str, agent: str) -> dict[str, Any]:
    """A StudySpec as JSON. Targets are those of a chat on a laptop: the first word within half a
    second, then faster than anyone reads. 40 requests show a p90 (36 do) and prove it (29 do)."""
    return {
        "name": f"{model} chat",
        "model": {"kind": "local", "name": model},
        "workload": {
            "preset": "chat",
            "input_tokens": {"kind": "lognormal", "mean": 64, "p95": 128, "maximum": 192},
            "output_tokens": {"kind": "fixed", "mean": 20},
            "request_rate_per_s": None,
            "requests": 40,
        },
        "targets": [
            {"metric": "ttft_s", "statistic": "p90", "limit": 0.5},
            {"metric": "itl_s", "statistic": "p90", "limit": 0.1},
            {"metric": "output_tok_s", "statistic": "mean", "limit": 10},
        ],
        "agent": agent,
        "engine": "transformers",
        "budget_s": 600,
    }
