"""An earlier study's spec as somebody would type it into the form for a new one."""

from __future__ import annotations

import json

from django.http import QueryDict

from advisor.pages.forms.presets import typed_length
from advisor.pages.forms.targets import typed_target
from gpuagent.wire import (
    ConfigModel,
    EngineSettings,
    HubModel,
    LengthSpec,
    LocalModel,
    SimulatedModel,
    StudySpec,
)

_TEXTS = (
    *("dtype", "attention", "threads", "kv_dtype", "max_running", "max_batched_tokens"),
    *("max_context", "tensor_parallel", "pipeline_parallel", "data_parallel"),
)
_SWITCHED = ("kv_cache", "chunked_prefill", "cuda_graphs", "prefix_cache", "expert_parallel")
_SWITCHES = {True: "true", False: "false", None: ""}


def typed(spec: StudySpec) -> QueryDict:
    """The form's fields; what it cannot say is where a length is cut (`cut_elsewhere`)."""
    workload = spec.workload
    fields = {
        "name": spec.name,
        **_model(spec),
        "preset": workload.preset,
        "request_rate": _number(workload.request_rate_per_s),
        "requests": str(workload.requests),
        "shared_prefix": _number(100 * workload.shared_prefix_frac or None),
        **typed_length("input", workload.input_tokens),
        **typed_length("output", workload.output_tokens),
        "agent": spec.agent or "",
        "engine": "" if spec.engine == "simulated" else spec.engine,
        "endpoint": spec.endpoint or "",
        "boundary": _SWITCHES[spec.boundary],
        "robustness": _SWITCHES[spec.robustness],
        "goal": spec.goal,
        "profile": _SWITCHES[spec.profile],
        "budget_min": _number(spec.budget_s / 60),
        "day_req_s": ", ".join(_number(rate) for rate in spec.day_req_s or ()),
        **_settings(spec.current),
    }
    data = QueryDict(mutable=True)
    data.update(fields)
    for index, target in enumerate(spec.targets):
        names = ("metric", "statistic", "limit")
        for name, value in zip(names, typed_target(target), strict=True):
            data[f"t{index}-{name}"] = value
    return data


def cut_elsewhere(length: LengthSpec) -> bool:
    """Whether its longest value is another one than the form would give it."""
    return length.maximum is not None and length.maximum != 2 * (length.p95 or 0)


def _model(spec: StudySpec) -> dict[str, str]:
    model = spec.model
    found = {"model_kind": model.kind}
    if isinstance(model, HubModel):
        found |= {"hub_id": model.id, "hub_revision": model.revision or ""}
    elif isinstance(model, LocalModel):
        found["local_model"] = model.name
    elif isinstance(model, ConfigModel):
        config = json.dumps(model.config, indent=2, ensure_ascii=False)
        found |= {"config_name": model.name, "config_text": config}
    elif isinstance(model, SimulatedModel):
        found["machine"] = model.name
    return found


def _settings(settings: EngineSettings) -> dict[str, str]:
    found = {
        name: "" if (value := getattr(settings, name)) is None else str(value) for name in _TEXTS
    }
    share = settings.memory_share_frac
    return {
        **found,
        **{name: _SWITCHES[getattr(settings, name)] for name in _SWITCHED},
        "memory_share": _number(None if share is None else 100 * share),
    }


def _number(value: float | None) -> str:
    """To 12 digits, as somebody would read it."""
    return "" if value is None else f"{value:.12g}"
