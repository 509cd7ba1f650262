"""What all servers that the agent starts itself have in common: start, readiness, scrape, stop.

Ready means that a real completion of one token was answered; a health endpoint alone says less. The
server listens on loopback only, on a port that was free a moment ago; another one is tried where
somebody took it since.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import httpx

from gpuagent.engines.base import ServerMemoryKind, ServerReport, Tick
from gpuagent.engines.scrape import scrape
from gpuagent.engines.server_failures import PORT_IN_USE, running_failure, startup_failure
from gpuagent.engines.server_process import ServerProcess, server_environment
from gpuagent.errors import AgentError
from gpuagent.launch import knob_options
from gpuagent.models import ResolvedModel
from gpuagent.pythons import package_version, python_of
from gpuagent.server_metrics import ServerMetrics
from gpuagent.telemetry.host import tree_rss_bytes
from gpuagent.telemetry.nvml import open_reader
from gpuagent.wire import EngineSettings, FailureReason
from gpuagent.wire.loaded import LoadedModel
from gpuagent.wire.serving import EngineFacts
from gpuagent.wire.settings import Engine

HOST = "127.0.0.1"
SERVED_NAME = "model"
PORT_TRIES = 3
_POLL_S = 0.25
_FIRST_ANSWER_S = 120.0
_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class ManagedServer:
    """See `gpuagent.engines.base.ServingEngine`. A subclass gives the command and reads the log."""

    name: Engine
    package: ClassVar[str]
    """Python package whose version is the engine's."""
    python_variable: ClassVar[str]
    """Environment variable with the Python that has the package, where it is not the agent's."""
    module: ClassVar[tuple[str, ...]]
    """What `python -m` runs, up to where the model's folder follows."""
    always: ClassVar[tuple[str, ...]]
    """Options beside those of the settings."""
    seed_option: ClassVar[str]
    gave_up: ClassVar[re.Pattern[str] | None] = None
    """What a 503 says that will never become a 200, where the process stays alive behind it."""
    died: ClassVar[re.Pattern[str] | None] = None
    """What the log says of a worker that ended while its server goes on."""
    token_prompts = True
    ignores_eos = True

    def __init__(self) -> None:
        self.url = ""
        self.key: str | None = None
        self.served_name = SERVED_NAME
        self._reader = open_reader()
        self._on_gpu = bool(self._reader.gpus())
        self.memory_kind: ServerMemoryKind = "server_device" if self._on_gpu else "server_rss"
        self._process: ServerProcess | None = None
        self._folder: Path | None = None
        self._tokenizer: Any = None
        self._python = python_of(self.package, self.python_variable)
        self._version = package_version(self._python, self.package) if self._python else None
        self._http = httpx.Client(timeout=httpx.Timeout(5.0), trust_env=False)

    # --- what a subclass says ------------------------------------------------------------------

    def command(self, model: Path, settings: EngineSettings, *, port: int, seed: int) -> list[str]:
        """The whole command, the program first."""
        return [
            self._python or "python",
            "-m",
            *self.module,
            str(model),
            *("--host", HOST, "--port", str(port), self.seed_option, str(seed)),
            *self.always,
            *(part for group in knob_options(self.name, settings).values() for part in group),
        ]

    def environment(self, settings: EngineSettings) -> dict[str, str]:
        """Variables beside those of every server."""
        return {}

    def facts(self, log: str, metrics: ServerMetrics | None) -> EngineFacts:
        """What the start said."""
        return EngineFacts()

    # --- starting ------------------------------------------------------------------------------

    def start(
        self, model: ResolvedModel | None, settings: EngineSettings, *, seed: int, tick: Tick
    ) -> ServerReport:
        folder = self._model_folder(model)
        if self._python is None:
            raise AgentError(
                FailureReason.AGENT_ERROR,
                f"{self.name} is not installed on this agent: set {self.python_variable} to the "
                f"Python that has {self.package}",
            )
        self._tokenizer = read_tokenizer(folder)
        began = time.perf_counter()
        for attempt in range(PORT_TRIES):
            try:
                first_s = self._start_once(folder, settings, seed=seed, tick=tick)
                break
            except AgentError as error:
                taken = (error.detail or "").startswith(PORT_IN_USE)
                if not taken or attempt == PORT_TRIES - 1:
                    raise
        ready_s = time.perf_counter() - began
        facts = self.facts(self._log(), self.metrics())
        return ServerReport(
            model=self._loaded(model, folder, settings, facts),
            facts=facts,
            version=self._version,
            command=_shown(self._process.command if self._process else (), folder),
            ready_s=ready_s,
            first_request_s=first_s,
            max_context=facts.max_context or _max_context(model),
            threads=settings.threads,
        )

    def _start_once(
        self, folder: Path, settings: EngineSettings, *, seed: int, tick: Tick
    ) -> float:
        self._stop()
        port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="server-"))
        self.url = f"http://{HOST}:{port}"
        command = self.command(folder, settings, port=port, seed=seed)
        extra = {**self.environment(settings), **_path_of(self._python)}
        if settings.threads is not None:
            extra["OMP_NUM_THREADS"] = str(settings.threads)
        env = server_environment(extra)
        self._process = ServerProcess(command, env=env, log=self._folder / "server.log")
        while True:
            tick()
            code = self._process.exit_code()
            if code is not None:
                # The log's last lines may still be on their way from a worker.
                time.sleep(0.2)
                raise startup_failure(self.name, code, self._process.log_tail())
            answered_s = self._try_completion()
            if answered_s is not None:
                return answered_s
            time.sleep(_POLL_S)

    def _try_completion(self) -> float | None:
        """Seconds of a completion of one token; None where there is no server yet."""
        began = time.perf_counter()
        try:
            answer = self._http.post(
                f"{self.url}/v1/completions",
                json={"model": self.served_name, "prompt": "Hello", "max_tokens": 1},
                timeout=_FIRST_ANSWER_S,
            )
        except httpx.ReadTimeout:
            # A request that came as the worker died is never answered.
            if self._died():
                raise startup_failure(self.name, None, self._log()) from None
            return None
        except httpx.TransportError:
            return None
        if answer.status_code == 503:
            said = self.gave_up.search(answer.text) if self.gave_up is not None else None
            if said is not None or self._died():
                found = f"{self._log()}\n{said.group(0) if said else ''}"
                raise startup_failure(self.name, None, found)
        if answer.status_code in (404, 503):
            # 503: still loading. A 404 before the routes are there looks the same for a moment.
            return None
        if answer.status_code != 200:
            raise AgentError(
                FailureReason.ENGINE_ERROR,
                f"{self.name} answered its first request with HTTP {answer.status_code}: "
                f"{answer.text[:300]}",
                detail=self._log()[-6000:],
            )
        return time.perf_counter() - began

    def _died(self) -> bool:
        """Whether the log says so of a worker, whatever its server answers."""
        return self.died is not None and self.died.search(self._log()) is not None

    def _model_folder(self, model: ResolvedModel | None) -> Path:
        if model is None or model.folder is None:
            raise AgentError(
                FailureReason.CONFIG_ERROR,
                f"model: {self.name} serves a folder or a hub model, not a bare config",
            )
        if model.gguf_file is not None:
            raise AgentError(
                FailureReason.MODEL_UNSUPPORTED,
                f"model: {model.label} is a GGUF file, and {self.name} needs safetensors",
            )
        return model.folder

    def _loaded(
        self,
        model: ResolvedModel | None,
        folder: Path,
        settings: EngineSettings,
        facts: EngineFacts,
    ) -> LoadedModel:
        config = (model.config if model else None) or {}
        text = config.get("text_config") or config
        dtype = settings.dtype if settings.dtype != "auto" else _dtype_of(config)
        params = stored_params(folder)
        quantised = bool(config.get("quantization_config"))
        in_bytes = None if quantised else _DTYPE_BYTES.get(dtype)
        stored = (model.weight_bytes if model else None) or 0
        gpus = self._reader.gpus()
        architectures = config.get("architectures") or text.get("architectures") or ["unknown"]
        return LoadedModel(
            architecture=str(architectures[0])[:200],
            dtype=dtype,
            attention=facts.attention or "engine's choice",
            device=f"cuda:0 {gpus[0].name}" if gpus else "cpu",
            params=max(1, params or stored // 2),
            stored_weight_bytes=params * in_bytes if params and in_bytes else stored,
            random_weights=False,
        )

    # --- while it runs -------------------------------------------------------------------------

    def encode(self, text: str) -> list[int] | None:
        if self._tokenizer is None:
            return None
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str | None:
        return None if self._tokenizer is None else str(self._tokenizer.decode(list(tokens)))

    def failure(self) -> AgentError | None:
        if self._process is None:
            return AgentError(FailureReason.ENGINE_ERROR, f"{self.name} was not started")
        self._process.cut_log()
        code = self._process.exit_code()
        if code is None:
            return None
        return running_failure(self.name, code, self._process.log_tail())

    def metrics(self) -> ServerMetrics | None:
        return scrape(self._http, self.url)

    def memory_bytes(self) -> int | None:
        if self._on_gpu:
            used = [sample.memory_used_bytes for sample in self._reader.sample(frozenset())]
            known = [value for value in used if value is not None]
            return sum(known) if known else None
        return tree_rss_bytes(self._process.pid) if self._process is not None else None

    def negative_log_likelihood(self, tokens: Sequence[int]) -> float | None:
        return None

    def versions(self) -> dict[str, str]:
        names = (self.package, "torch", "transformers")
        found = {name: package_version(self._python, name) for name in names}
        return {name: version for name, version in found.items() if version}

    def close(self) -> None:
        self._stop()
        self._http.close()
        self._reader.close()

    def _log(self) -> str:
        return self._process.log_tail() if self._process is not None else ""

    def _stop(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def logged_number(pattern: re.Pattern[str], log: str) -> int | None:
    """The first number that the log has there, without its thousands separators."""
    found = pattern.search(log)
    return int(found.group(1).replace(",", "")) if found else None


def kv_cache_tokens(
    pattern: re.Pattern[str], log: str, metrics: ServerMetrics | None
) -> int | None:
    """Of the log, else of the metrics: not every version says it in both."""
    logged = logged_number(pattern, log)
    if logged is None and metrics is not None and metrics.kv_cache_tokens is not None:
        return int(metrics.kv_cache_tokens)
    return logged


def free_port() -> int:
    """A port of loopback that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def read_tokenizer(folder: Path) -> Any:
    """The folder's fast tokenizer, or None where it has none that can be read."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(path))
    except Exception:  # noqa: BLE001  whatever is wrong with it, text is sent instead
        return None


def stored_params(folder: Path) -> int | None:
    """Elements of all tensors in the safetensors files, from their headers alone."""
    total = 0
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with path.open("rb") as file:
                (size,) = struct.unpack("<Q", file.read(8))
                if size > 100_000_000:
                    return None
                header = json.loads(file.read(size))
        except (OSError, ValueError, struct.error):
            return None
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            count = 1
            for length in tensor.get("shape", ()):
                count *= int(length)
            total += count
    return total or None


def _path_of(python: str | None) -> dict[str, str]:
    """The environment's own programs first, as if it were activated."""
    if python is None:
        return {}
    return {"PATH": os.pathsep.join((str(Path(python).parent), os.environ.get("PATH", "")))}


def _shown(command: Sequence[str], folder: Path) -> tuple[str, ...]:
    """The command without this machine's paths."""
    return tuple(
        folder.name if part == str(folder) else Path(part).name if index == 0 else part
        for index, part in enumerate(command)
    )


def _dtype_of(config: dict[str, Any]) -> str:
    text = config.get("text_config") or {}
    found = config.get("dtype") or config.get("torch_dtype") or text.get("dtype")
    return str(found or text.get("torch_dtype") or "auto").removeprefix("torch.")


def _max_context(model: ResolvedModel | None) -> int | None:
    config = (model.config if model else None) or {}
    text = config.get("text_config") or config
    value = text.get("max_position_embeddings")
    return int(value) if isinstance(value, int) and value > 0 else None
