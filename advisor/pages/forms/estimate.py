"""The form of the Model page: text as an `EstimateQuery`, or as errors beside the fields."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext_lazy as _
from pydantic import ValidationError

from advisor.catalog import MARKETS, list_gpus, list_models
from advisor.errors import InvalidInput
from advisor.estimates.cost import TYPICAL_DAY
from advisor.estimates.query import EstimateQuery
from advisor.estimates.service import ENGINES, KV_ITEMSIZE
from advisor.fleet.models import Agent
from advisor.pages.forms import config_upload
from advisor.pages.language import SaidSelect
from advisor.shapes import QUANT_NAMES
from advisor.wire_errors import fields_from_validation_error

_HINT = {"autocomplete": "off", "spellcheck": "false"}


def _text(label: str, *, help_text: str = "", css: str = "", **attrs: str) -> forms.CharField:
    widget = forms.TextInput({"class": f"input {css}".strip(), **attrs})
    return forms.CharField(label=label, required=False, help_text=help_text, widget=widget)


def _number(label: str, *, help_text: str = "", mode: str = "numeric") -> forms.CharField:
    return _text(label, help_text=help_text, css="num", inputmode=mode)


def _select(label: str, choices: Iterable[tuple[str, Any]] = ()) -> forms.CharField:
    # No ChoiceField: the query refuses what it does not know, in the same words everywhere.
    widget = SaidSelect({"class": "input"}, choices=list(choices))
    return forms.CharField(label=label, required=False, widget=widget)


class EstimateForm(forms.Form):
    """Model, device, load, prices. A field that was not sent, as in a short link, has a default."""

    model = _text(
        "Model", css="input--mono", placeholder=_("owner/name or a folder"), list="models", **_HINT
    )
    device = _select("Device")
    engine = _select("Engine", [(name, name) for name in ENGINES])
    engine_version = _text("Engine version", css="input--mono", placeholder=_("current"), **_HINT)
    tp = _number("Tensor parallel")
    quant = _select(
        "Weights",
        [("auto", "As published"), ("none", "16 bit"), *((q, q) for q in QUANT_NAMES)],
    )
    kv_dtype = _select("KV cache", [("auto", "As published"), *((k, k) for k in KV_ITEMSIZE)])
    isl = _number("Input")
    osl = _number("Output")
    concurrency = _number("In flight")
    context = _number("Longest sequence", help_text="Empty: input + output.")
    memory_fraction = _number(
        "Memory fraction", help_text="Empty: the engine's default.", mode="decimal"
    )
    market = _select("Market", [(name, name.capitalize()) for name in MARKETS])
    peak_rate = _number(
        "Busiest rate of a day",
        help_text="For replicas and the cost of a day.",
        mode="decimal",
    )
    day_req_s = _text(
        "Rates through the day",
        help_text="Comma-separated, equal slices. Empty: an assumed day with a quiet night.",
        css="input--mono",
        **_HINT,
    )
    config_text = forms.CharField(
        label="Or paste a config.json",
        required=False,
        strip=False,
        widget=forms.Textarea({"class": "input input--mono", "rows": 6, **_HINT}),
        help_text="Wins over the model's name.",
    )

    def __init__(
        self,
        data: QueryDict | None = None,
        *,
        agents: Iterable[Agent] = (),
    ) -> None:
        self.agents = list(agents)
        folders = [
            model.name for agent in self.agents for model in agent.hello.models if model.config
        ]
        self.models = list(dict.fromkeys([*folders, *list_models()]))
        self.defaults = _defaults(self.agents, folders)
        super().__init__(_with_defaults(data, self.defaults), initial=self.defaults)
        self.fields["device"].widget.choices = _devices(self.agents)

    @property
    def own_config(self) -> bool:
        """Whether the answer is about a pasted config, which no link can carry."""
        return bool(self.data.get("config_text", "").strip())

    def query(self) -> EstimateQuery | None:
        """The query, or None with every error beside its field."""
        if not self.is_bound:
            return EstimateQuery.model_validate(_payload(self.defaults, None))
        if not self.is_valid():
            return None
        try:
            config = None
            if self.own_config:
                config = config_upload.parse(None, self.cleaned_data["config_text"])
            return EstimateQuery.model_validate(_payload(self.cleaned_data, config))
        except InvalidInput as error:
            self.refuse(error)
        except ValidationError as error:
            self._add(fields_from_validation_error(error))
        return None

    def refuse(self, error: InvalidInput) -> None:
        """Show a refusal beside the fields that it names."""
        self._add(error.fields or {"": [error.message]})

    def messages(self) -> list[str]:
        return [text for texts in self.errors.values() for text in texts]

    def _add(self, fields: dict[str, list[str]]) -> None:
        for path, texts in fields.items():
            name = path.partition(".")[0]
            name = {"gpu": "device", "agent": "device", "config": "config_text"}.get(name, name)
            for text in texts:
                self.add_error(name if name in self.fields else None, text)


def _with_defaults(data: QueryDict | None, defaults: dict[str, Any]) -> QueryDict | None:
    if data is None:
        return None
    copy = data.copy()
    for name, value in defaults.items():
        copy.setdefault(name, value)
    return copy


def _payload(values: dict[str, Any], config: dict[str, Any] | None) -> dict[str, Any]:
    kept = ("engine", "engine_version", "tp", "quant", "kv_dtype", "isl", "osl", "concurrency")
    kept += ("context", "memory_fraction", "market")
    payload = {name: values[name] for name in kept if str(values.get(name) or "").strip()}
    kind, _, name = str(values.get("device") or "").partition(":")
    payload["agent" if kind == "agent" else "gpu"] = name or kind or None
    if config is not None:
        payload["config"] = config
    else:
        payload["model"] = values.get("model") or None
    rates = split_rates(values.get("day_req_s"))
    peak = str(values.get("peak_rate") or "").strip()
    if rates:
        payload["day_req_s"] = rates
    elif peak:
        try:
            payload["day_req_s"] = [float(peak) * share for share in TYPICAL_DAY]
        except ValueError:
            payload["day_req_s"] = [peak]
    return payload


def split_rates(text: str | None) -> list[str]:
    """The rates of a day as they were typed, apart from each other."""
    return [part for part in re.split(r"[,;\s]+", text or "") if part]


def _devices(agents: list[Agent]) -> list[tuple[str, list[tuple[str, str]]]]:
    own = [(f"agent:{agent.slug}", f"{agent.slug}: {_hardware(agent)}") for agent in agents]
    catalogue = [(f"gpu:{gpu.name}", gpu.name) for gpu in list_gpus()]
    groups = [("Catalogue", catalogue)]
    return [("Your agents", own), *groups] if own else groups


def _hardware(agent: Agent) -> str:
    hello = agent.hello
    if hello.gpus:
        return f"{len(hello.gpus)} × {hello.gpus[0].name}"
    return f"{hello.host.cpu}, {hello.host.logical_cores} cores"


def _defaults(agents: list[Agent], folders: list[str]) -> dict[str, Any]:
    """An agent's own folder on its own hardware where there is one, else a well-known pair."""
    own = bool(agents and folders)
    with_gpu = own and bool(agents[0].hello.gpus)
    small = own and not with_gpu
    return {
        "model": folders[0] if own else "Qwen/Qwen3-32B",
        "device": f"agent:{agents[0].slug}" if own else "gpu:H100 SXM",
        "engine": "transformers" if small else "vllm",
        "tp": "1",
        "quant": "auto",
        "kv_dtype": "auto",
        "isl": "128" if small else "1000",
        "osl": "64" if small else "256",
        "concurrency": "1" if small else "16",
        "market": "on-demand",
    }
