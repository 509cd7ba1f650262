"""The request planner that a command line asked for; needs none of the clients."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from gpuagent import text
from gpuagent.errors import AgentError, ConfigError
from gpuagent.load.plan import Asked, FilePrompts, Planner, TextPrompts, read_lengths


def make_planner(args: argparse.Namespace, *, seed: int | None = None) -> Planner:
    """The planner of the settings; `seed` instead of the settings' own for a further cell."""
    seed = args.seed if seed is None else seed
    return Planner(
        input_tokens=read_lengths(args.input_tokens),
        output_tokens=read_lengths(args.output_tokens),
        prompts=_prompts(args),
        asked=Asked(args.model, args.api, ignore_eos=not args.no_ignore_eos),
        seed=seed,
    )


def _prompts(args: argparse.Namespace) -> TextPrompts | FilePrompts:
    if args.prompts and args.prompts.endswith(".jsonl"):
        return FilePrompts(Path(args.prompts))
    try:
        passage = text.load(args.prompts)
    except AgentError as error:
        raise ConfigError(error.message.replace("text_path:", "--prompts:")) from error
    encode = _encoder(args.tokenizer) if args.tokenizer else None
    return TextPrompts(
        passage.text, encode=encode, shared_prefix_frac=args.shared_prefix, seed=args.seed
    )


def _encoder(folder: str) -> Callable[[str], list[int]]:
    path = Path(folder) / "tokenizer.json"
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigError("--tokenizer needs the tokenizers package: pip install '.[agent]'") from (
            error
        )
    if not path.is_file():
        raise ConfigError(f"--tokenizer: there is no {path}")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        raise ConfigError(f"--tokenizer: {path} cannot be read ({error})") from error
    return lambda passage: list(tokenizer.encode(passage, add_special_tokens=False).ids)
