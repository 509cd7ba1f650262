"""`transformers serve`: the transformers library behind the OpenAI API, without metrics."""

from __future__ import annotations

from gpuagent.engines.base import ServerReport, Tick
from gpuagent.engines.managed import ManagedServer
from gpuagent.models import ResolvedModel
from gpuagent.wire import EngineSettings


class TransformersServeEngine(ManagedServer):
    """The command of transformers 5; needs its extra `serving` (FastAPI and uvicorn)."""

    name = "transformers_serve"
    package = "transformers"
    python_variable = "GPUAGENT_TRANSFORMERS_PYTHON"
    module = ("transformers.cli.transformers", "serve")
    always = ("--continuous-batching",)
    seed_option = "--default-seed"
    # It takes text only, and knows no option to go on after the end of text.
    token_prompts = False
    ignores_eos = False

    def start(
        self, model: ResolvedModel | None, settings: EngineSettings, *, seed: int, tick: Tick
    ) -> ServerReport:
        # It calls the model by what it was given.
        self.served_name = str(self._model_folder(model))
        return super().start(model, settings, seed=seed, tick=tick)
