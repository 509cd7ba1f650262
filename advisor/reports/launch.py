"""Recommended settings as something to paste: what differs from today is marked.

Pure text. The transformers engine runs in-process, so its "launch command" is the few lines of
Python that load the model the same way the agent did.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuagent.wire import ConfigModel, EngineSettings, ModelRef


@dataclass(frozen=True, slots=True)
class LaunchLine:
    """One line; `changed` where it differs from the current settings."""

    text: str
    changed: bool = False


KNOB_NAMES: dict[str, str] = {
    "dtype": "Precision",
    "kv_cache": "KV cache",
    "attention": "Attention",
    "threads": "CPU threads",
    "max_running": "Running requests",
    "max_batched_tokens": "Tokens per step",
    "chunked_prefill": "Chunked prefill",
    "memory_share_frac": "Memory share",
    "kv_dtype": "KV cache precision",
    "cuda_graphs": "CUDA graphs",
}


def knob_name(knob: str) -> str:
    return KNOB_NAMES.get(knob, knob)


def knob_text(value: object) -> str:
    """A setting's value in words: True is "on", None is "engine's choice"."""
    if value is None or value == "auto":
        return "engine's choice" if value is None else "auto"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def settings_text(settings: EngineSettings) -> str:
    """What differs from the engine's defaults, in one line."""
    differing = EngineSettings().differences(settings)
    if not differing:
        return "engine defaults"
    return ", ".join(
        f"{_inside(knob_name(k))} {knob_text(new)}" for k, (_, new) in differing.items()
    )


def _inside(name: str) -> str:
    """A knob's name inside a sentence; abbreviations keep their capitals."""
    return name if name[1:2].isupper() else name[:1].lower() + name[1:]


def launch_lines(
    model: ModelRef, settings: EngineSettings, current: EngineSettings
) -> tuple[LaunchLine, ...]:
    """Python that loads `model` with `settings` in transformers."""
    differs = current.differences(settings)
    lines = [LaunchLine("import torch"), LaunchLine(_import(model))]
    if settings.threads is not None:
        lines.append(LaunchLine(f"torch.set_num_threads({settings.threads})", "threads" in differs))
    lines += [LaunchLine(text) for text in _opening(model)]
    if settings.dtype != "auto" or "dtype" in differs:
        value = '"auto"' if settings.dtype == "auto" else f"torch.{settings.dtype}"
        lines.append(LaunchLine(f"    dtype={value},", "dtype" in differs))
    if settings.attention != "auto":
        name = f'    attn_implementation="{settings.attention}",'
        lines.append(LaunchLine(name, "attention" in differs))
    lines.append(LaunchLine(")"))
    generate = f"output = model.generate(**inputs, use_cache={settings.kv_cache})"
    return (*lines, LaunchLine(generate, "kv_cache" in differs))


def _import(model: ModelRef) -> str:
    extra = "AutoConfig, " if isinstance(model, ConfigModel) else ""
    return f"from transformers import {extra}AutoModelForCausalLM"


def _opening(model: ModelRef) -> tuple[str, str]:
    if isinstance(model, ConfigModel):
        return "model = AutoModelForCausalLM.from_config(", '    AutoConfig.from_pretrained("."),'
    # repr quotes whatever a folder may be called.
    return "model = AutoModelForCausalLM.from_pretrained(", f"    {model.label!r},"
