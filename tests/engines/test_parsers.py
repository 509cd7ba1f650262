"""Every command that the product prints, in the real option parser of the engine that it names.

The parser alone: no model is loaded and no GPU is needed. SGLang's server does not run without one,
its parser does.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.exports import export_document
from advisor.exports.arguments import SERVING_ENGINES, ServingEngine, start_words
from advisor.exports.as_command import to_command
from advisor.exports.launch import command_lines
from advisor.verdict import study_verdict
from gpuagent.pythons import python_of
from gpuagent.wire import EngineSettings, HubModel, LocalModel, ModelRef
from tests.advisor.exports.test_same_flags import VALUES
from tests.builders import make_baseline_result, make_evidence, make_study_spec, make_trial

PYTHON = python_of("vllm", "GPUAGENT_VLLM_PYTHON")
SGLANG = os.environ.get("GPUAGENT_SGLANG_SITE")
pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]
MODELS: tuple[ModelRef, ...] = (
    HubModel(id="Qwen/Qwen3-8B", revision="0" * 40),
    LocalModel(name="a folder"),
    LocalModel(name="--looks-like-an-option"),
)
# Reads a list of argument lists, prints what the parser said to those that it refused.
PARSE = {
    "vllm": """
import sys
sys.argv = ["vllm", "serve"]
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform
vllm.platforms.current_platform = CpuPlatform()
from importlib import import_module
def first(names, attribute):
    for name in names:
        try:
            return getattr(import_module(name), attribute)
        except (ImportError, AttributeError):
            pass
    raise SystemExit("the option parser is in a place that is not known here")
parser = first(
    ("vllm.entrypoints.openai.cli_args", "vllm.entrypoints.common.cli_args",
     "vllm.entrypoints.launchers.cli_args"), "make_arg_parser",
)(first(("vllm.utils.argparse_utils", "vllm.utils"), "FlexibleArgumentParser")())
""",
    "sglang": """
import argparse
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
""",
}
RUN = """
import json, sys
class Refused(Exception):
    pass
def refuse(message):
    raise Refused(message)
parser.error = refuse
refused, models = {}, {}
for text, argv in json.load(sys.stdin).items():
    try:
        found = parser.parse_args(argv)
        told = (getattr(found, name, None) for name in ("model_tag", "model_path", "model"))
        models[text] = next((name for name in told if name), None)
    except Refused as error:
        refused[text] = str(error)
print("RESULT" + json.dumps([refused, models]))
"""


def settings() -> Iterator[EngineSettings]:
    """None, each value of each knob alone, and all knobs at once with first and last values."""
    yield EngineSettings()
    for knob, values in VALUES.items():
        for value in values:
            yield EngineSettings.model_validate({knob: value})
    for at in (0, -1):
        yield EngineSettings.model_validate({knob: values[at] for knob, values in VALUES.items()})


def printed(engine: ServingEngine) -> dict[str, list[str]]:
    """Command -> its arguments, as the study page and the export as a command print it."""
    texts = set()
    for chosen in settings():
        for model in MODELS:
            lines = command_lines(engine, model, chosen, EngineSettings())
            texts.add("\n".join(line.text for line in lines))
        spec = make_study_spec(model=MODELS[0])
        trial = make_trial(make_baseline_result(n_requests=5, cells=()), settings=chosen)
        evidence = make_evidence(trial, spec=spec)
        document = export_document(evidence, study_verdict(evidence, ()), engine=engine)
        texts.add(to_command(document).decode())
    found = {}
    for text in texts:
        # A shell joins lines that end in a backslash; shlex does not.
        words = shlex.split(text.replace("\\\n", " "), comments=True)
        start = start_words(engine)
        assert tuple(words[: len(start)]) == start, text
        found[text] = words[len(start) :]
    return found


def parsed(engine: ServingEngine, commands: dict[str, list[str]]) -> tuple[dict, dict]:
    """(command -> why it was refused, command -> the model that was understood)."""
    assert PYTHON is not None
    path = {"PYTHONPATH": str(Path(SGLANG).resolve())} if engine == "sglang" and SGLANG else {}
    done = subprocess.run(
        [PYTHON, "-c", PARSE[engine] + RUN],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        timeout=150,
        env={**os.environ, **path},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    refused, models = json.loads(done.stdout.rpartition("RESULT")[2])
    return refused, models


@pytest.mark.skipif(PYTHON is None, reason="no vLLM here: make test-engines installs it")
@pytest.mark.parametrize("engine", SERVING_ENGINES)
def test_every_printed_command_parses_in_the_real_parser(engine: ServingEngine) -> None:
    if engine == "sglang" and not SGLANG:
        pytest.skip("no SGLang here: make test-engines installs its parser")
    commands = printed(engine)
    assert len(commands) > 60
    model = ["--model-path", "m"] if engine == "sglang" else ["m"]
    wrong = {"an option": [*model, "--no-such-option"], "a value": [*model, "--dtype", "float7"]}
    refused, models = parsed(engine, commands | wrong)
    assert set(refused) == set(wrong), refused
    assert set(models) == set(commands)
    assert set(models.values()) == {"Qwen/Qwen3-8B", "./a folder", "./--looks-like-an-option"}
