"""Names the machine, its devices and the versions: for the server, and as provenance of results.

The daemon calls this, so torch is never imported here; versions come from package metadata.
"""

from __future__ import annotations

import ast
import os
import platform
import re
import socket
from collections.abc import Sequence
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import psutil

from gpuagent.endpoints import read_endpoints
from gpuagent.engines import ENGINES
from gpuagent.errors import ConfigError
from gpuagent.experiments import EXPERIMENTS
from gpuagent.models import scan_models
from gpuagent.pythons import package_version as package_version_of
from gpuagent.pythons import python_of
from gpuagent.telemetry.nvml import open_reader
from gpuagent.wire import (
    WIRE_VERSION,
    AgentHello,
    EngineSettings,
    EnvironmentSnapshot,
    HostInfo,
)
from gpuagent.wire.ceilings import Ceilings

DISTRIBUTION = "llm-tuning-advisor"
PACKAGES = ("torch", "transformers", "safetensors", "tokenizers", "gguf", "vllm", "sglang", "numpy")
# What each engine needs beside the agent itself.
ENGINE_PACKAGES: dict[str, tuple[str, ...]] = {"transformers": ("torch", "transformers")}
MAX_ARCHITECTURES = 2000
# Needs nothing but the agent itself.
SIMULATED = "simulated"


def agent_version() -> str:
    """Version of this package, "0+unknown" when it runs from a checkout that is not installed."""
    return package_version(DISTRIBUTION) or "0+unknown"


def package_version(name: str) -> str | None:
    """Version from the installed metadata, without importing the package."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Python and the packages that decide what a number means."""
    found = {"python": platform.python_version(), "agent": agent_version()}
    for name in PACKAGES:
        if (version := package_version(name)) is not None:
            found[name] = version
    return found


def host_info() -> HostInfo:
    """The machine beside its GPUs."""
    return HostInfo(
        hostname=socket.gethostname()[:200] or "unknown",
        cpu=_cpu_name(),
        physical_cores=psutil.cpu_count(logical=False) or None,
        logical_cores=os.cpu_count() or 1,
        memory_bytes=int(psutil.virtual_memory().total),
        os=f"{platform.system()} {platform.release()}"[:200],
    )


def build_hello(model_roots: Sequence[Path], ceilings: Ceilings | None = None) -> AgentHello:
    """All that the server has to know about this agent to plan for it."""
    reader = open_reader()
    try:
        gpus, driver, gpu_problem = reader.gpus(), reader.driver_version, reader.problem
    finally:
        reader.close()
    servers = server_versions()
    engines = (
        *(name for name in ENGINES if not missing_packages(name)),
        *servers,
        *(("openai",) if endpoint_names() else ()),
        SIMULATED,
    )
    return AgentHello(
        agent_version=agent_version(),
        wire_version=WIRE_VERSION,
        host=host_info(),
        gpus=gpus,
        driver_version=driver,
        versions={**versions(), **servers},
        engines=engines,
        endpoints=endpoint_names(),
        experiments=tuple(EXPERIMENTS),
        architectures=architectures() if "transformers" in engines else (),
        models=scan_models(model_roots),
        problems=_problems(model_roots, gpu_problem),
        ceilings=ceilings,
    )


def snapshot(
    *, device: str, engine_versions: dict[str, str], threads: int | None, settings: EngineSettings
) -> EnvironmentSnapshot:
    """Provenance of one result. engine_versions override what the metadata says."""
    reader = open_reader()
    try:
        gpus, driver = reader.gpus(), reader.driver_version
    finally:
        reader.close()
    return EnvironmentSnapshot(
        host=host_info(),
        gpus=gpus,
        driver_version=driver,
        device=device,
        versions={**versions(), **engine_versions},
        threads=threads,
        settings={knob: str(value) for knob, value in settings.model_dump().items()},
    )


_SERVING_EXTRA = ("fastapi", "uvicorn", "accelerate")
"""Packages of transformers' extra `serving` without which the server does not start."""


def server_versions() -> dict[str, str]:
    """Servers that this agent can start, with the version that each would run."""
    found = {}
    for name, python, package in (
        ("vllm", "GPUAGENT_VLLM_PYTHON", "vllm"),
        ("sglang", "GPUAGENT_SGLANG_PYTHON", "sglang"),
        ("transformers_serve", "GPUAGENT_TRANSFORMERS_PYTHON", "transformers"),
    ):
        version = package_version_of(python_of(package, python), package)
        if version is not None and (name != "transformers_serve" or _can_serve(python)):
            found[name] = version
    return found


def _can_serve(variable: str) -> bool:
    """Whether transformers' extra `serving` is there: the command refuses to start without."""
    python = python_of("transformers", variable)
    return all(package_version_of(python, name) for name in _SERVING_EXTRA)


def endpoint_names() -> tuple[str, ...]:
    """Names of the endpoints that this agent's owner listed; () where the list cannot be read."""
    try:
        return tuple(sorted(read_endpoints()))
    except ConfigError:
        return ()


def missing_packages(engine: str) -> tuple[str, ...]:
    """Packages that `engine` needs and that are not installed."""
    return tuple(name for name in ENGINE_PACKAGES.get(engine, ()) if find_spec(name) is None)


@lru_cache(maxsize=1)
def architectures() -> tuple[str, ...]:
    """`model_type`s that the installed transformers can build as a causal language model.

    Read from its source as data: importing it would pull torch into the daemon. Empty where the
    table is not where it was in transformers 5.24.
    """
    spec = find_spec("transformers")
    if spec is None or spec.origin is None:
        return ()
    source = Path(spec.origin).parent / "models" / "auto" / "modeling_auto.py"
    try:
        module = ast.parse(source.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return ()
    for node in module.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
            for target in node.targets
        ):
            return _mapping_keys(node.value)
    return ()


def _mapping_keys(node: ast.expr) -> tuple[str, ...]:
    """Keys of `OrderedDict([(key, value), ...])`."""
    if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.List)):
        return ()
    keys = [
        pair.elts[0].value
        for pair in node.args[0].elts
        if isinstance(pair, ast.Tuple) and isinstance(pair.elts[0], ast.Constant)
    ]
    return tuple(key for key in keys if isinstance(key, str) and key)[:MAX_ARCHITECTURES]


def _problems(model_roots: Sequence[Path], gpu_problem: str | None) -> tuple[str, ...]:
    found = [
        f"The {engine} engine needs {', '.join(missing)}: pip install {' '.join(missing)}"
        for engine in ENGINES
        if (missing := missing_packages(engine))
    ]
    found.extend(
        f"The model folder {root} does not exist" for root in model_roots if not root.is_dir()
    )
    # A driver without NVML is worth a line; a machine without NVIDIA hardware is not.
    if gpu_problem and Path("/proc/driver/nvidia").exists():
        found.append(f"This host has an NVIDIA driver, but its GPUs cannot be read: {gpu_problem}")
    return tuple(found)


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
        match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
        if match:
            return match.group(1).strip()[:200]
    except OSError:
        # Not Linux; the standard library's answer is coarser.
        pass
    return (platform.processor() or platform.machine() or "unknown")[:200]
