"""The four presets as choices of the form: what each one fills in, in the form's own units."""

from __future__ import annotations

import json
from dataclasses import dataclass

from advisor.presets import PRESETS
from gpuagent.wire import LengthSpec


@dataclass(frozen=True, slots=True)
class FormPreset:
    """One choice: title, hint, and values by field name."""

    title: str
    hint: str
    fields: dict[str, str]

    @property
    def as_json(self) -> str:
        return json.dumps(self.fields)


def form_presets(*, small: bool) -> dict[str, FormPreset]:
    """small: for agents without a GPU, so that a study ends in minutes."""
    found = {}
    for key, preset in PRESETS.items():
        workload = preset.workload_for(small=small)
        rate = workload.request_rate_per_s
        fields = {
            "request_rate": "" if rate is None else f"{rate:g}",
            "requests": str(workload.requests),
            **typed_length("input", workload.input_tokens),
            **typed_length("output", workload.output_tokens),
        }
        found[key] = FormPreset(
            preset.title, f"{preset.summary} Trade-off: {preset.trade_off}", fields
        )
    return found


def typed_length(name: str, length: LengthSpec) -> dict[str, str]:
    """The form's two fields of a length."""
    p95 = "" if length.p95 is None else str(length.p95)
    return {f"{name}_mean": str(length.mean), f"{name}_p95": p95}
