"""Recommended settings as something to paste: what differs from today is marked.

Pure text. The transformers engine runs in-process, so its "launch command" is the few lines of
Python that load the model the same way the agent did. The simulated engine understands the knobs
of vLLM, so its settings are shown as flags of that.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuagent.wire import ConfigModel, EngineSettings, ModelRef, SimulatedModel


@dataclass(frozen=True, slots=True)
class LaunchLine:
    """One line; `changed` where it differs from the current settings."""

    text: str
    changed: bool = False


def launch_lines(
    model: ModelRef, settings: EngineSettings, current: EngineSettings
) -> tuple[LaunchLine, ...]:
    """Python that loads `model` with `settings` in transformers; for a simulated one vLLM flags."""
    if isinstance(model, SimulatedModel):
        return _vllm_lines(settings, current)
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


_SWITCHES = {
    "chunked_prefill": ("--enable-chunked-prefill", "--no-enable-chunked-prefill"),
    "cuda_graphs": ("--no-enforce-eager", "--enforce-eager"),
}
_FLAGS = {
    "max_running": "--max-num-seqs",
    "max_batched_tokens": "--max-num-batched-tokens",
    "memory_share_frac": "--gpu-memory-utilization",
    "kv_dtype": "--kv-cache-dtype",
}


def _vllm_lines(settings: EngineSettings, current: EngineSettings) -> tuple[LaunchLine, ...]:
    """Flags of vLLM 0.33 for the serving knobs that are set; the model stays the reader's own."""
    differs = current.differences(settings)
    lines = [
        LaunchLine("# Found on a simulator: measure it on your own device before you rely on it."),
        LaunchLine("vllm serve YOUR_MODEL"),
    ]
    for knob in settings.serving_knobs:
        value = getattr(settings, knob)
        text = _SWITCHES[knob][0 if value else 1] if knob in _SWITCHES else _FLAGS[knob]
        text += "" if knob in _SWITCHES else f" {value}"
        lines.append(LaunchLine(f"    {text}", knob in differs))
    return (lines[0], *(LaunchLine(f"{x.text} \\", x.changed) for x in lines[1:-1]), lines[-1])
