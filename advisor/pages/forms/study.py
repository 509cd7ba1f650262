"""The new-study form: what a person types, as a `StudySpec` or as errors beside the fields.

All checks of values are those of the wire types and of `study_preview`; this module converts units
and names. Text that does not convert is passed on as it is, so that pydantic refuses it by field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict
from django.utils.translation import gettext as _
from pydantic import ValidationError

from advisor.errors import InvalidInput
from advisor.fleet.models import Agent
from advisor.pages.forms import config_upload
from advisor.pages.forms.estimate import split_rates
from advisor.pages.forms.presets import form_presets
from advisor.pages.forms.targets import MAX_TARGETS, TargetRow, target_rows
from advisor.pages.language import SaidSelect
from advisor.presets import PRESETS
from advisor.units import METRIC_NAMES
from advisor.wire_errors import fields_from_validation_error
from gpuagent.simulator import MACHINES
from gpuagent.wire import StudySpec
from gpuagent.wire.settings import SERVERS

NO_AGENT = ""
_HINT = {"autocomplete": "off", "spellcheck": "false"}
_ENGINES_CHOICE = "Empty: engine's choice."
_ENGINES = {
    "transformers": "transformers",
    "vllm": "vLLM server",
    "sglang": "SGLang server",
    "transformers_serve": "transformers serve",
    "openai": "An endpoint that runs already",
}
_OPEN_SWITCH = [("", "Engine's choice"), ("true", "On"), ("false", "Off")]
_SWITCH = {"true": True, "false": False}


def _text(label: str, *, help_text: str = "", css: str = "", **attrs: str) -> forms.CharField:
    widget = forms.TextInput({"class": f"input {css}".strip(), **attrs})
    return forms.CharField(label=label, required=False, help_text=help_text, widget=widget)


def _number(label: str, *, help_text: str = "", mode: str = "numeric") -> forms.CharField:
    return _text(label, help_text=help_text, css="num", inputmode=mode)


def _select(label: str, choices: Iterable[tuple[str, str]]) -> forms.ChoiceField:
    return forms.ChoiceField(
        label=label,
        required=False,
        choices=list(choices),
        widget=SaidSelect({"class": "input"}),
    )


class StudyForm(forms.Form):
    """One page: model, workload, targets, current settings, hardware and budget."""

    name = _text("Name of the study", help_text="Empty: model and preset.", maxlength="120")
    model_kind = forms.ChoiceField(
        label="Model",
        choices=[
            ("local", "Folder on the agent"),
            ("hub", "Hub id"),
            ("config", "config.json"),
            ("simulated", "Simulated"),
        ],
        required=False,
    )
    # No ChoiceField: a folder counts for its own kind of model only, where the intake checks it.
    local_model = forms.CharField(
        label="Model folder", required=False, widget=forms.Select({"class": "input"})
    )
    hub_id = _text("Model id", css="input--mono", placeholder="owner/name", **_HINT)
    hub_revision = _text("Revision", css="input--mono", help_text="Optional commit.", **_HINT)
    config_name = _text("Name of the model", maxlength="200")
    config_file = forms.FileField(
        label="Upload config.json",
        required=False,
        allow_empty_file=True,
        widget=forms.FileInput({"class": "input", "accept": ".json,application/json"}),
    )
    config_text = forms.CharField(
        label="Or paste it",
        required=False,
        strip=False,
        widget=forms.Textarea({"class": "input input--mono", "rows": 8, **_HINT}),
        help_text="The architecture is built with random weights: speed and memory are real, "
        "quality is not measurable.",
    )
    machine = _select("Model and device", [(name, name) for name in sorted(MACHINES)])
    preset = forms.ChoiceField(
        label="Preset", choices=[(name, name) for name in PRESETS], required=False
    )
    request_rate = _number(
        "Request rate", help_text="Empty: each answer sends the next request.", mode="decimal"
    )
    requests = _number("Requests per trial")
    input_mean = _number("Input, mean")
    input_p95 = _number("Input, p95", help_text="Empty: always the mean. Cut at twice this.")
    output_mean = _number("Output, mean")
    output_p95 = _number("Output, p95", help_text="Empty: always the mean. Cut at twice this.")
    shared_prefix = _number(
        "Shared beginning",
        help_text="Of every prompt, such as a system prompt. Empty: none.",
        mode="decimal",
    )
    dtype = _select(
        "Precision",
        [("auto", "As published"), *((d, d) for d in ("float32", "bfloat16", "float16"))],
    )
    kv_cache = _select("KV cache", [("true", "On"), ("false", "Off")])
    attention = _select(
        "Attention", [("auto", "Engine's choice"), ("eager", "eager"), ("sdpa", "sdpa")]
    )
    threads = _number("CPU threads", help_text=_ENGINES_CHOICE)
    max_running = _number("Running requests", help_text=_ENGINES_CHOICE)
    max_batched_tokens = _number("Tokens per step", help_text=_ENGINES_CHOICE)
    memory_share = _number("Memory share", help_text=_ENGINES_CHOICE, mode="decimal")
    chunked_prefill = _select("Chunked prefill", _OPEN_SWITCH)
    cuda_graphs = _select("CUDA graphs", _OPEN_SWITCH)
    kv_dtype = _select("KV cache precision", [("auto", "As the model"), ("fp8", "fp8")])
    agent = forms.ChoiceField(label="Agent", required=False)
    budget_min = _number("Time budget", mode="decimal")
    goal = _select(
        "Goal",
        [("optimise", "Find a better configuration"), ("diagnose", "Diagnose today's settings")],
    )
    profile = _select("Profile", [("false", "No"), ("true", "Yes, of the current settings")])
    engine = _select("Engine", _ENGINES.items())
    endpoint = forms.ChoiceField(
        label="Endpoint", required=False, widget=forms.Select({"class": "input"})
    )
    boundary = _select(
        "Highest rate", [("false", "Not searched"), ("true", "Search in each trial")]
    )
    robustness = _select(
        "Robustness test",
        [
            ("", "At the end, not of an endpoint"),
            ("true", "At the end: loads it beyond its limits"),
            ("false", "No"),
        ],
    )
    prefix_cache = _select("Prefix cache", _OPEN_SWITCH)
    max_context = _number("Longest request", help_text=_ENGINES_CHOICE)
    tensor_parallel = _number("Tensor parallel", help_text=_ENGINES_CHOICE)
    pipeline_parallel = _number("Pipeline parallel", help_text=_ENGINES_CHOICE)
    data_parallel = _number("Data parallel", help_text=_ENGINES_CHOICE)
    expert_parallel = _select("Expert parallelism", _OPEN_SWITCH)
    day_req_s = _text(
        "Rates through the day",
        help_text="Requests a second, comma-separated, equal slices of 24 hours.",
        css="input--mono",
        **_HINT,
    )

    def __init__(
        self,
        data: QueryDict | None = None,
        files: MultiValueDict | None = None,
        *,
        agents: Iterable[Agent] = (),
    ) -> None:
        self.agents = list(agents)
        initial = _initial(self.agents)
        self.presets = form_presets(small=_is_small(self.agents, initial["agent"]))
        initial |= self.presets["chat"].fields
        # An uploaded config is shown again as pasted text, since a browser never fills a file field
        # twice; its errors then belong there.
        text = _file_text(data, files)
        self.file_is_text = text is not None
        if data is not None and text is not None:
            data = data.copy()
            data["config_text"] = text
        super().__init__(data, files, initial=initial)
        self.folders = local_models(self.agents)
        offered = {engine for agent in self.agents for engine in agent.hello.engines}
        # What no agent offers is not shown; without agents the prediction needs none of them.
        self.fields["engine"].choices = [
            (name, title)
            for name, title in _ENGINES.items()
            if name == "transformers" or name in offered
        ]
        self.fields["endpoint"].choices = [
            (name, f"{name} ({agent.slug})")
            for agent in self.agents
            for name in agent.hello.endpoints
        ]
        self.fields["local_model"].widget.choices = self.folders
        self.fields["agent"].choices = [
            *((a.slug, a.slug) for a in self.agents),
            (NO_AGENT, "No agent"),
        ]
        first = PRESETS["chat"].targets_for(small=_is_small(self.agents, initial["agent"]))
        self.rows: list[TargetRow] = target_rows(self.data if data is not None else None, first)
        self.targets_errors: list[str] = []

    # --- what the view needs -------------------------------------------------------------------

    @property
    def kind(self) -> str:
        return self["model_kind"].value() or "local"

    def spec(self) -> StudySpec | None:
        """The spec, or None with every error beside its field."""
        if not self.is_valid():
            return None
        payload = self._payload()
        try:
            spec = StudySpec.model_validate(payload)
        except ValidationError as error:
            self.add_errors(fields_from_validation_error(error))
            return None
        return None if self.errors else spec

    def refuse(self, error: InvalidInput) -> None:
        """Show a service's refusal beside the fields that it names."""
        self.add_errors(error.fields or {"": [error.message]})

    def add_errors(self, fields: Mapping[str, list[str]]) -> None:
        for path, messages in fields.items():
            for message in messages:
                self._add(path, _in_words(message))

    def messages(self) -> list[str]:
        """All errors in one list, for the plan beside the form."""
        mine = [
            f"{self.fields[name].label or 'Choice'}: {message}" if name in self.fields else message
            for name, messages in self.errors.items()
            for message in messages
        ]
        rows = [
            f"Target {number}: {message}"
            for number, row in enumerate(self.rows, start=1)
            for messages in row.errors.values()
            for message in messages
        ]
        return list(dict.fromkeys([*mine, *rows, *self.targets_errors]))

    # --- form -> wire --------------------------------------------------------------------------

    def _payload(self) -> dict[str, Any]:
        data = self.cleaned_data
        model = self._model()
        budget = _float(data["budget_min"])
        return {
            "name": data["name"] or _default_name(model, data["preset"]),
            "model": model,
            "workload": {
                "preset": data["preset"],
                "input_tokens": _length(data["input_mean"], data["input_p95"]),
                "output_tokens": _length(data["output_mean"], data["output_p95"]),
                "request_rate_per_s": data["request_rate"] or None,
                "requests": data["requests"],
                "shared_prefix_frac": self._shared_prefix(),
            },
            "targets": [row.payload() for row in self.rows],
            "agent": data["agent"] or None,
            "engine": self._engine(),
            "endpoint": (data["endpoint"] or None) if self._engine() == "openai" else None,
            "boundary": data["boundary"] == "true"
            and (self._serves() or self._engine() == "simulated"),
            "robustness": _SWITCH.get(data["robustness"]) if self._serves() else None,
            "current": self._current(),
            "goal": data["goal"] or "optimise",
            "profile": data["profile"] == "true",
            "budget_s": budget * 60 if isinstance(budget, float) else budget,
            "day_req_s": self._day(),
        }

    def _shared_prefix(self) -> float | str:
        """Of servers alone: the field is not shown for others."""
        text = self.cleaned_data["shared_prefix"]
        if not text or not self._serves():
            return 0.0
        share = _float(text)
        return share / 100 if isinstance(share, float) else share

    def _day(self) -> list[str] | None:
        """Of servers alone: the field is not shown for others."""
        return split_rates(self.cleaned_data["day_req_s"]) or None if self._serves() else None

    def _serves(self) -> bool:
        return self._engine() in SERVERS

    def _engine(self) -> str:
        if self.kind == "simulated":
            return "simulated"
        return self.cleaned_data["engine"] or "transformers"

    def _current(self) -> dict[str, Any]:
        """Settings of the engine that is chosen; what its own fields do not show is left out."""
        data, engine = self.cleaned_data, self._engine()
        if engine == "openai":
            return {}
        if engine in ("simulated", "vllm", "sglang"):
            real: dict[str, Any] = {}
            if engine != "simulated":
                real = {
                    "dtype": data["dtype"] or "auto",
                    "prefix_cache": _SWITCH.get(data["prefix_cache"]),
                    "max_context": data["max_context"] or None,
                    "tensor_parallel": data["tensor_parallel"] or None,
                    "pipeline_parallel": data["pipeline_parallel"] or None,
                    "data_parallel": data["data_parallel"] or None,
                    "expert_parallel": _SWITCH.get(data["expert_parallel"]),
                }
            if engine == "vllm":
                real["threads"] = data["threads"] or None
            return {
                "max_running": data["max_running"] or None,
                "chunked_prefill": _SWITCH.get(data["chunked_prefill"]),
                "kv_dtype": data["kv_dtype"] or "auto",
                **self._batching(),
                **real,
            }
        if engine == "transformers_serve":
            return {
                "dtype": data["dtype"] or "auto",
                "attention": data["attention"] or "auto",
                "threads": data["threads"] or None,
                **self._batching(),
            }
        return {
            "dtype": data["dtype"] or "auto",
            "kv_cache": data["kv_cache"] != "false",
            "attention": data["attention"] or "auto",
            "threads": data["threads"] or None,
        }

    def _batching(self) -> dict[str, Any]:
        """What every server with continuous batching can be told."""
        data = self.cleaned_data
        share = _float(data["memory_share"]) if data["memory_share"] else None
        return {
            "max_batched_tokens": data["max_batched_tokens"] or None,
            "memory_share_frac": share / 100 if isinstance(share, float) else share,
            "cuda_graphs": _SWITCH.get(data["cuda_graphs"]),
        }

    def _model(self) -> dict[str, Any]:
        data = self.cleaned_data
        kind = data["model_kind"] or "local"
        if kind == "simulated":
            return {"kind": "simulated", "name": data["machine"] or min(MACHINES)}
        if kind == "hub":
            revision = data["hub_revision"] or None
            return {"kind": "hub", "id": data["hub_id"], "revision": revision}
        if kind == "local":
            return {"kind": "local", "name": data["local_model"]}
        try:
            upload = None if self.file_is_text else data["config_file"]
            config = config_upload.parse(upload, data["config_text"])
        except InvalidInput as error:
            self.add_errors(error.fields)
            config = {}
        name = data["config_name"] or config_upload.name_of(config)
        return {"kind": "config", "name": name, "config": config}

    # --- errors --------------------------------------------------------------------------------

    def _add(self, path: str, message: str) -> None:
        row = re.match(r"targets\.(\d+)(?:\.(\w+))?$", path)
        if row and int(row[1]) < len(self.rows):
            self.rows[int(row[1])].add_error(row[2] or "limit", message)
        elif path == "targets" or message.startswith("Two targets"):
            self.targets_errors.append(message)
        else:
            field = self._field_of(path)
            self.add_error(field, message)

    def _field_of(self, path: str) -> str | None:
        if path == "model.name":
            return {"config": "config_name", "simulated": "machine"}.get(self.kind, "local_model")
        if path == "model":
            fields = {"hub": "hub_id", "config": "config_text", "simulated": "machine"}
            return fields.get(self.kind, "local_model")
        for prefix, field in _FIELDS.items():
            if path == prefix or path.startswith(f"{prefix}."):
                return field
        return None


# Longest first where one path starts with another.
_FIELDS = {
    "name": "name",
    "model.kind": "model_kind",
    "model.id": "hub_id",
    "model.revision": "hub_revision",
    "model.config": "config_text",
    "workload.preset": "preset",
    "workload.request_rate_per_s": "request_rate",
    "workload.requests": "requests",
    "workload.shared_prefix_frac": "shared_prefix",
    "workload.input_tokens.mean": "input_mean",
    "workload.input_tokens": "input_p95",
    "workload.output_tokens.mean": "output_mean",
    "workload.output_tokens": "output_p95",
    "current.dtype": "dtype",
    "current.kv_cache": "kv_cache",
    "current.attention": "attention",
    "current.threads": "threads",
    "current.max_running": "max_running",
    "current.max_batched_tokens": "max_batched_tokens",
    "current.memory_share_frac": "memory_share",
    "current.chunked_prefill": "chunked_prefill",
    "current.cuda_graphs": "cuda_graphs",
    "current.kv_dtype": "kv_dtype",
    "current.prefix_cache": "prefix_cache",
    "current.max_context": "max_context",
    "current.tensor_parallel": "tensor_parallel",
    "current.pipeline_parallel": "pipeline_parallel",
    "current.data_parallel": "data_parallel",
    "current.expert_parallel": "expert_parallel",
    "day_req_s": "day_req_s",
    "agent": "agent",
    "engine": "engine",
    "endpoint": "endpoint",
    "boundary": "boundary",
    "robustness": "robustness",
    "goal": "goal",
    "profile": "profile",
    "budget_s": "budget_min",
    "config_file": "config_file",
    "config_text": "config_text",
}


def _in_words(message: str) -> str:
    """Metrics by the names that the form shows."""
    for key, name in METRIC_NAMES.items():
        message = message.replace(f"{key}:", f"{name} ").replace(key, name)
    return message


def local_models(agents: Iterable[Agent]) -> list[tuple[str, str]]:
    """Folders that agents offer, with the agents that hold them; unusable ones say why."""
    holders: dict[str, list[str]] = {}
    for agent in agents:
        for model in agent.hello.models:
            unusable = _("not usable")
            note = agent.slug if model.problem is None else f"{agent.slug}: {unusable}"
            holders.setdefault(model.name, []).append(note)
    return [(name, f"{name} ({', '.join(notes)})") for name, notes in sorted(holders.items())]


def _default_name(model: dict[str, Any], preset: str) -> str:
    """Model and preset, where the person gave no name."""
    label = str(model.get("id") or model.get("name") or "").rpartition("/")[2]
    return f"{label[:100]} {preset}".strip()


def _length(mean: str, p95: str) -> dict[str, Any]:
    if not p95:
        return {"kind": "fixed", "mean": mean}
    length: dict[str, Any] = {"kind": "lognormal", "mean": mean, "p95": p95}
    if p95.isascii() and p95.isdigit():
        # A lognormal tail has no end, a context window has one.
        length["maximum"] = 2 * int(p95)
    return length


def _float(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _initial(agents: list[Agent]) -> dict[str, Any]:
    reachable = [a for a in agents if a.is_reachable and a.hello.engines]
    has_models = any(m.problem is None for a in agents for m in a.hello.models)
    return {
        "model_kind": "local" if has_models or agents else "hub",
        "preset": "chat",
        "agent": reachable[0].slug if reachable else (agents[0].slug if agents else NO_AGENT),
        "budget_min": "30",
        "dtype": "auto",
        "kv_cache": "true",
        "attention": "auto",
    }


def _is_small(agents: list[Agent], slug: str) -> bool:
    """Whether the agent that is chosen at first has no GPU."""
    return not any(agent.hello.gpus for agent in agents if agent.slug == slug)


def _file_text(data: QueryDict | None, files: MultiValueDict | None) -> str | None:
    """The text of the uploaded config; None where there is none or it is not fit to be shown."""
    upload = files.get("config_file") if files else None
    return None if data is None or upload is None else config_upload.text_of(upload)


__all__ = ["MAX_TARGETS", "NO_AGENT", "StudyForm", "local_models"]
