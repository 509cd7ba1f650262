"""`transformers serve`: the transformers library behind the OpenAI API, without metrics."""

from __future__ import annotations

import re
from pathlib import Path

import psutil

from gpuagent.engines.base import ServerReport, Tick
from gpuagent.engines.managed import ManagedServer
from gpuagent.models import ResolvedModel
from gpuagent.wire import EngineSettings

_CPU_CACHE_BYTES = 2 << 30


class TransformersServeEngine(ManagedServer):
    """The command of transformers 5; needs its extra `serving` (FastAPI, uvicorn, accelerate)."""

    name = "transformers_serve"
    package = "transformers"
    python_variable = "GPUAGENT_TRANSFORMERS_PYTHON"
    module = ("transformers.cli.transformers", "serve")
    always = ("--continuous-batching",)
    seed_option = "--default-seed"
    gave_up = re.compile(r"CB worker (?:died|is dead).*")
    died = re.compile(r"in _run_generation_loop")
    # It takes text only, and knows no option to go on after the end of text.
    token_prompts = False
    ignores_eos = False

    def command(self, model: Path, settings: EngineSettings, *, port: int, seed: int) -> list[str]:
        command = super().command(model, settings, port=port, seed=seed)
        if not self._on_gpu and settings.memory_share_frac is None:
            # Its default is nine tenths of the host's memory, which other programs live in, too.
            share = min(0.5, _CPU_CACHE_BYTES / psutil.virtual_memory().total)
            command += ["--cb-max-memory-percent", f"{share:.4f}"]
        return command

    def start(
        self, model: ResolvedModel | None, settings: EngineSettings, *, seed: int, tick: Tick
    ) -> ServerReport:
        # It calls the model by what it was given.
        self.served_name = str(self._model_folder(model))
        return super().start(model, settings, seed=seed, tick=tick)
