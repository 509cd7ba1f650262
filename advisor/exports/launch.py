"""Recommended settings as something to paste: what differs from today is marked.

Pure text. The transformers engine runs in-process, so its "launch command" is the few lines of
Python that load the model the same way the agent did. The simulated engine understands the knobs
of vLLM, so its settings are shown as flags of that.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from advisor.exports.arguments import (
    SERVING_ENGINES,
    ServedModel,
    ServingEngine,
    arguments,
    start_words,
)
from gpuagent.launch import knob_options
from gpuagent.wire import ConfigModel, EngineSettings, ModelRef, SimulatedModel

SIMULATED = "Found on a simulator: measure it on your own device before you rely on it."


@dataclass(frozen=True, slots=True)
class LaunchLine:
    """One line; `changed` where it differs from the current settings."""

    text: str
    changed: bool = False


def launch_lines(
    model: ModelRef, settings: EngineSettings, current: EngineSettings, engine: str = "transformers"
) -> tuple[LaunchLine, ...]:
    """How `engine` serves `model` with `settings`: a command, or Python for the one in process."""
    if isinstance(model, SimulatedModel):
        return (LaunchLine(f"# {SIMULATED}"), *command_lines("vllm", model, settings, current))
    for serving in SERVING_ENGINES:
        if engine == serving:
            return command_lines(serving, model, settings, current)
    if engine == "imported":
        return ()
    if engine == "openai":
        return (LaunchLine("# Measured at an endpoint as it is: its settings are its owner's."),)
    if engine == "transformers_serve":
        return _transformers_serve_lines(model, settings, current)
    return code_lines(model, settings, current)


def command_lines(
    engine: ServingEngine,
    model: ModelRef,
    settings: EngineSettings,
    current: EngineSettings,
) -> tuple[LaunchLine, ...]:
    """A shell command, one line for each setting; every word is quoted for a shell."""
    differs = current.differences(settings)
    words = [*start_words(engine), *ServedModel.of(model).words(engine, folder=".")]
    lines = [LaunchLine(shlex.join(words))]
    lines += [
        LaunchLine(f"    {shlex.join(argument.words)}", argument.knob in differs)
        for argument in arguments(engine, settings)[0]
        if argument.words
    ]
    return _one_command(lines)


def code_lines(
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


def _transformers_serve_lines(
    model: ModelRef, settings: EngineSettings, current: EngineSettings
) -> tuple[LaunchLine, ...]:
    differs = current.differences(settings)
    lines = [
        LaunchLine(shlex.join(["transformers", "serve", model.label])),
        LaunchLine("    --continuous-batching"),
    ]
    lines += [
        LaunchLine(f"    {shlex.join(words)}", knob in differs)
        for knob, words in knob_options("transformers_serve", settings).items()
    ]
    return _one_command(lines)


def _one_command(lines: list[LaunchLine]) -> tuple[LaunchLine, ...]:
    """Each line but the last continued, as a shell wants it."""
    return (*(LaunchLine(f"{x.text} \\", x.changed) for x in lines[:-1]), lines[-1])


def _import(model: ModelRef) -> str:
    extra = "AutoConfig, " if isinstance(model, ConfigModel) else ""
    return f"from transformers import {extra}AutoModelForCausalLM"


def _opening(model: ModelRef) -> tuple[str, str]:
    if isinstance(model, ConfigModel):
        return "model = AutoModelForCausalLM.from_config(", '    AutoConfig.from_pretrained("."),'
    # repr quotes whatever a folder may be called.
    return "model = AutoModelForCausalLM.from_pretrained(", f"    {model.label!r},"
