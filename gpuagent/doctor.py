"""`python -m gpuagent doctor`: what works on this host, and how to fix the rest.

Every check stands alone: one that cannot be made says so and the others go on. torch is asked in a
process of its own, since a broken CUDA can take the asker down with it.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from gpuagent import environment
from gpuagent.models import scan_models
from gpuagent.telemetry.nvml import open_reader
from gpuagent.wire.base import WIRE_HEADER, WIRE_VERSION

State = Literal["ok", "warn", "fail"]
MIN_FREE_BYTES = 5 * 10**9
NETWORK_TIMEOUT_S = 5.0
TORCH_TIMEOUT_S = 120.0
_SYMBOLS: dict[State, str] = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
_TORCH_QUESTION = """
import json, torch
facts = {"version": torch.__version__, "cuda_build": torch.version.cuda, "devices": []}
if torch.cuda.is_available():
    facts["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    (torch.ones(64, device="cuda") * 2).sum().item()
facts["sum"] = float(torch.ones(8).sum())
print(json.dumps(facts))
"""


@dataclass(frozen=True, slots=True)
class Check:
    """One line. `fix` is what to do, empty where nothing needs doing."""

    name: str
    state: State
    message: str
    fix: str = ""

    def to_dict(self) -> dict[str, str]:
        return asdict(self)

    def line(self) -> str:
        text = f"{_SYMBOLS[self.state]}  {self.name}: {self.message}"
        return f"{text}\n      {self.fix}" if self.fix else text


def run(
    *,
    state_dir: Path,
    model_roots: Sequence[Path],
    broker_url: str | None = None,
    server_url: str | None = None,
    credential: str | None = None,
    on_start: Callable[[str], None] = lambda _: None,
) -> list[Check]:
    """All checks, in the order in which a person would fix them.

    `on_start` is told what is asked next; importing torch and a silent server take seconds.
    """
    on_start("torch, in a process of its own")
    torch_facts = _ask_torch()
    questions: list[tuple[str, Callable[[], list[Check]]]] = [
        ("Python", _python),
        ("torch", lambda: _torch(torch_facts)),
        ("GPUs", lambda: _gpus(torch_facts)),
        ("engines", _engines),
        ("Nsight Systems", _nsys),
        ("disk", lambda: _disk(state_dir)),
        ("model folders", lambda: _models(model_roots)),
        ("broker", lambda: [_broker(broker_url)]),
        ("server", lambda: [_server(server_url, credential)]),
    ]
    checks: list[Check] = []
    for name, question in questions:
        on_start(name)
        checks += question()
    return checks


def _python() -> list[Check]:
    message = f"{platform.python_version()}, agent {environment.agent_version()}"
    return [Check("python", "ok", message)]


def _ask_torch() -> dict[str, object] | str:
    """torch's own answer, or a sentence why there is none."""
    if environment.package_version("torch") is None:
        return "is not installed"
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TORCH_QUESTION],
            capture_output=True,
            text=True,
            timeout=TORCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"did not answer within {TORCH_TIMEOUT_S:.0f} s"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    if done.returncode != 0 or not lines:
        return f"does not work: {lines[-1][:300] if lines else f'exit code {done.returncode}'}"
    facts: dict[str, object] = json.loads(lines[-1])
    return facts


def _torch(facts: dict[str, object] | str) -> list[Check]:
    if isinstance(facts, str):
        return [Check("torch", "fail", f"torch {facts}", "pip install 'torch>=2.11'")]
    build = f"CUDA {facts['cuda_build']}" if facts["cuda_build"] else "CPU build"
    return [Check("torch", "ok", f"{facts['version']} ({build})")]


def _gpus(facts: dict[str, object] | str) -> list[Check]:
    reader = open_reader()
    try:
        seen, driver, problem = reader.gpus(), reader.driver_version, reader.problem
    finally:
        reader.close()
    devices = facts.get("devices") if isinstance(facts, dict) else None
    usable = list(devices) if isinstance(devices, list) else []
    if not seen and not usable:
        return [
            Check("cuda", "warn", "no GPU is usable; trials run on the CPU"),
            Check("nvml", "warn", problem or "no GPU was found", "Needs the NVIDIA driver."),
        ]
    checks = []
    if usable:
        checks.append(Check("cuda", "ok", ", ".join(str(name) for name in usable)))
    else:
        fix = "Install a torch build for this driver's CUDA version."
        checks.append(Check("cuda", "fail", "torch cannot use the GPU that NVML shows", fix))
    if seen:
        names = ", ".join(gpu.name for gpu in seen)
        checks.append(Check("nvml", "ok", f"driver {driver or 'unknown'}: {names}"))
    else:
        fix = "pip install nvidia-ml-py; in a container pass the utility capability."
        checks.append(Check("nvml", "warn", problem or "NVML shows no GPU", fix))
    return checks


def _engines() -> list[Check]:
    checks = []
    for name, packages in environment.ENGINE_PACKAGES.items():
        missing = environment.missing_packages(name)
        if missing:
            fix = f"pip install {' '.join(missing)}"
            checks.append(Check(name, "fail", f"{', '.join(missing)} missing", fix))
        else:
            found = [f"{p} {environment.package_version(p)}" for p in packages]
            checks.append(Check(name, "ok", ", ".join(found)))
    for name in ("vllm", "sglang"):
        version = environment.package_version(name)
        message = version or "not installed; its trials go to other agents"
        checks.append(Check(name, "ok" if version else "warn", message))
    return checks


def _nsys() -> list[Check]:
    path = shutil.which("nsys")
    if path:
        return [Check("nsys", "ok", path)]
    fix = "Install NVIDIA Nsight Systems for timelines of the GPU."
    return [Check("nsys", "warn", "not found on PATH; profiles use torch's profiler", fix)]


def _disk(state_dir: Path) -> list[Check]:
    folder = state_dir
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return [Check("disk", "fail", f"{folder}: {error.strerror}", "Set GPUAGENT_STATE_DIR.")]
    if not os.access(folder, os.W_OK):
        fix = "Change its owner, or set GPUAGENT_STATE_DIR."
        return [Check("disk", "fail", f"{folder} is not writable", fix)]
    message = f"{free / 1e9:.1f} GB free below {folder}"
    if free < MIN_FREE_BYTES:
        return [Check("disk", "warn", message, "Results and models need about 5 GB.")]
    return [Check("disk", "ok", message)]


def _models(roots: Sequence[Path]) -> list[Check]:
    if not roots:
        return [Check("models", "warn", "no model folder is set", "Set GPUAGENT_MODEL_DIRS.")]
    checks = []
    for root in roots:
        if not root.is_dir():
            fix = "Create it, or set GPUAGENT_MODEL_DIRS."
            checks.append(Check("models", "warn", f"{root} does not exist", fix))
            continue
        found = scan_models([root])
        usable = [model.name for model in found if model.problem is None]
        refused = [model for model in found if model.problem is not None]
        message = f"{root}: {len(usable)} usable, {len(refused)} refused"
        fix = "; ".join(f"{model.name} {model.problem}" for model in refused[:5])
        checks.append(Check("models", "ok" if usable else "warn", message, fix))
    return checks


def _broker(url: str | None) -> Check:
    if not url:
        return Check("broker", "warn", "none; the agent polls the server every 20 s instead")
    try:
        import redis
    except ImportError:
        return Check("broker", "fail", "the package redis is missing", "pip install redis")
    shown = _without_password(url)
    try:
        client = redis.Redis.from_url(
            url, socket_timeout=NETWORK_TIMEOUT_S, socket_connect_timeout=NETWORK_TIMEOUT_S
        )
        client.ping()
    except (redis.RedisError, ValueError, OSError) as error:
        fix = "Trials still arrive by polling; open the port for a faster start."
        return Check("broker", "warn", f"{shown} does not answer ({error})"[:300], fix)
    return Check("broker", "ok", f"{shown} answers")


def _server(url: str | None, credential: str | None) -> Check:
    if not url:
        fix = "python -m gpuagent register --server URL --token TOKEN"
        return Check("server", "warn", "this agent is not registered", fix)
    import httpx

    try:
        headers = {WIRE_HEADER: str(WIRE_VERSION), "Authorization": f"Bearer {credential or ''}"}
        reply = httpx.get(f"{url.rstrip('/')}/healthz", timeout=NETWORK_TIMEOUT_S)
        if reply.status_code >= 500:
            return Check("server", "fail", f"{url} answers {reply.status_code}", "See its log.")
        # An empty renewal is refused before it can change anything, but only after the credential
        # was looked at: 401 and 403 mean a bad one, 400 and 422 a good one.
        reply = httpx.post(
            f"{url.rstrip('/')}/api/agent/v1/renew",
            json={},
            headers=headers,
            timeout=NETWORK_TIMEOUT_S,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        fix = "Check the address, the proxy and the certificate."
        return Check("server", "fail", f"{url} is not reached ({error})"[:300], fix)
    if reply.status_code in (401, 403):
        fix = "Register the agent again with a new token from the dashboard."
        return Check("server", "fail", f"{url} does not know this agent's credential", fix)
    if reply.status_code == 426:
        fix = "Update the agent: pip install --upgrade with the server's version."
        return Check("server", "fail", f"{url} speaks another wire version", fix)
    if reply.status_code in (400, 422):
        return Check("server", "ok", f"{url} answers and knows this agent")
    return Check("server", "warn", f"{url} answered {reply.status_code} to a test request")


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port}" if parts.hostname else "the broker"
