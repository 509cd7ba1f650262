"""A launch command as a person keeps it: shell text, or a line of a compose file or a unit file."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

MAX_CHARS = 20_000
_STARTS: tuple[tuple[str, str], ...] = (
    (r"vllm serve\b", "vllm"),
    (r"-m vllm\.entrypoints(?:\.cli\.main serve|\.openai\.api_server)\b", "vllm"),
    (r"\bvllm/vllm-openai(?:-\w+)?(?::\S+)?", "vllm"),
    (r"-m sglang\.launch_server\b", "sglang"),
    (r"\bsglang serve\b", "sglang"),
)


class CommandError(ValueError):
    """Text that is no launch command; the message says what to give instead."""


@dataclass(frozen=True, slots=True)
class Word:
    """One argument, and whether a value was glued to it by `=`."""

    text: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """engine: None where the text holds arguments alone."""

    engine: str | None
    words: tuple[Word, ...]


def read_command(text: str) -> Command:
    """Split a command as a shell would. Nothing is run, no variable is looked up.

    Raises CommandError for text that a shell would not take, or that has no argument at all.
    """
    if len(text) > MAX_CHARS:
        raise CommandError(f"The command has {len(text):,} characters; the limit is {MAX_CHARS:,}.")
    joined = re.sub(r"\\\s*\n", " ", text)
    lines = (line for line in joined.splitlines() if not line.lstrip().startswith("#"))
    joined = " ".join(lines)
    engine = None
    for pattern, name in _STARTS:
        found = re.search(pattern, joined)
        if found is not None:
            engine, joined = name, joined[found.end() :]
            break
    try:
        tokens = shlex.split(joined)
    except ValueError as error:
        raise CommandError(f"A shell would not take this command: {error}.") from None
    tokens = _until_shell(tokens)
    if engine is None and not any(token.startswith("-") for token in tokens):
        raise CommandError("No option was found. Give a launch command, or its arguments.")
    return Command(engine, tuple(_word(token) for token in tokens))


def _until_shell(tokens: list[str]) -> list[str]:
    """Up to a pipe, a redirection or the next command."""
    for index, token in enumerate(tokens):
        if token in ("|", "&&", "||", ";", "&") or re.match(r"\d?>{1,2}", token):
            return tokens[:index]
    return tokens


def _word(token: str) -> Word:
    if token.startswith("--") and "=" in token:
        flag, _, value = token.partition("=")
        return Word(flag, value)
    return Word(token)
