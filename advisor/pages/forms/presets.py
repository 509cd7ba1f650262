"""What the four presets fill into the form, in the form's own units."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FormPreset:
    """One choice: title, hint, and values by field name."""

    title: str
    hint: str
    fields: dict[str, str]

    @property
    def as_json(self) -> str:
        return json.dumps(self.fields)


def _fields(
    rate: str, requests: str, input_mean: str, input_p95: str, output_mean: str, output_p95: str
) -> dict[str, str]:
    return {
        "request_rate": rate,
        "requests": requests,
        "input_mean": input_mean,
        "input_p95": input_p95,
        "output_mean": output_mean,
        "output_p95": output_p95,
    }


PRESETS: dict[str, FormPreset] = {
    "chat": FormPreset(
        "Chat",
        "Streaming answers; both latencies matter",
        _fields("", "60", "64", "128", "20", ""),
    ),
    "api": FormPreset(
        "API",
        "Short answers in bursts; TTFT matters",
        _fields("", "60", "128", "256", "8", ""),
    ),
    "edge": FormPreset(
        "Edge",
        "One stream; memory and energy matter",
        _fields("", "40", "64", "", "32", ""),
    ),
    "batch": FormPreset(
        "Batch",
        "Nobody waits; tokens per second matter",
        _fields("", "40", "256", "512", "32", ""),
    ),
}
