"""What is wrong with a launch command: dead, renamed, misspelt, ill-valued and conflicting flags.

An engine's own parser finds only part of it: it takes unique prefixes, takes a stray value behind a
switch as the model's name, and checks few ranges (seen in vLLM 0.33 and SGLang 0.5.23).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from advisor.flags.catalogue import Catalogue, Option
from advisor.flags.command import Command, Word

Level = Literal["error", "warning"]
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$")
_INTEGER = re.compile(r"[+-]?\d+$")
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])$")
_LEVEL = re.compile(r"-O[0-3]$")
_SCALE = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, slots=True)
class Problem:
    """error: the engine does not start, or does something else than was meant. warning: it works
    today, or has no effect."""

    level: Level
    flag: str
    message: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class _Use:
    """An option as the command uses it; `value` is its text, a bool for a switch."""

    option: Option
    flag: str
    value: str | bool


def check(command: Command, catalogue: Catalogue) -> list[Problem]:
    """All problems of the command under this version, in the order of the command."""
    problems: list[Problem] = []
    uses: dict[str, _Use] = {}
    words = list(command.words)
    index = 0
    models = 0
    while index < len(words):
        word = words[index]
        index += 1
        if catalogue.engine == "vllm" and _LEVEL.match(word.text):
            continue
        if not _is_flag(word.text):
            models += 1
            if models > 1 or not catalogue.positional:
                problems.append(_stray(word.text, words[index - 2].text if index > 1 else ""))
            continue
        option, found = _lookup(word, catalogue)
        problems += found
        if option is None:
            # What follows an unknown flag may be its value, and is nobody's stray word.
            if word.value is None and index < len(words) and not _is_flag(words[index].text):
                index += 1
            continue
        if "." in word.text:
            index += word.value is None
            continue
        flag = _plain(word.text, catalogue)
        if option.kind == "bool":
            use = _Use(option, flag, flag not in option.off)
            problems += _switch(word, words[index] if index < len(words) else None, catalogue)
            if _takes_stray(words, index):
                index += 1
        else:
            values: list[str] = [word.value] if word.value is not None else []
            while index < len(words) and not _is_flag(words[index].text):
                if values and not option.many:
                    break
                values.append(words[index].text)
                index += 1
            if not values:
                problems.append(Problem("error", flag, "needs a value, and none follows."))
                continue
            use = _Use(option, flag, values[-1])
            for value in values:
                problems += _value(flag, option, value)
        earlier = uses.get(option.name)
        if earlier is not None and not option.many:
            text = "is given twice; the last one counts."
            problems.append(
                Problem("warning", flag, text, f"Remove one of {earlier.flag}, {flag}.")
            )
        uses[option.name] = use
    return [*problems, *_ranges(uses), *_conflicts(uses, catalogue)]


# --- single flags ------------------------------------------------------------------------------


def _is_flag(text: str) -> bool:
    return text.startswith("-") and len(text) > 1 and not _NUMBER.match(text)


def _plain(flag: str, catalogue: Catalogue) -> str:
    return flag.replace("_", "-") if catalogue.underscores and flag.startswith("--") else flag


def _lookup(word: Word, catalogue: Catalogue) -> tuple[Option | None, list[Problem]]:
    flag = word.text
    plain = _plain(flag, catalogue)
    if "." in plain and catalogue.dotted:
        head = plain.partition(".")[0]
        plain = head if head in catalogue.by_flag else plain
    option = catalogue.by_flag.get(plain)
    if option is not None:
        return option, _deprecated(flag, option)
    gone = next((entry for entry in catalogue.gone if entry.flag == plain), None)
    engine = f"{catalogue.engine} {catalogue.version}"
    if gone is not None:
        fix = f"Use {gone.use}." if gone.use else "Remove it; nothing replaces it."
        if gone.refused:
            return None, [Problem("error", flag, f"does not exist in {engine}.", fix)]
        text = f"is only a prefix that {engine} happens to complete."
        return None, [Problem("warning", flag, text, fix)]
    if not catalogue.underscores and "_" in flag and flag.replace("_", "-") in catalogue.by_flag:
        fix = f"Write {flag.replace('_', '-')}."
        return None, [Problem("error", flag, f"{engine} refuses underscores.", fix)]
    starting = catalogue.starting(plain)
    if len(starting) == 1:
        name = next(f for f in starting[0].flags if f.startswith(plain))
        text = f"is only a prefix of {name}; a new option can make it ambiguous."
        return None, [Problem("warning", flag, text, f"Write {name}.")]
    if len(starting) > 1:
        names = ", ".join(o.name for o in starting[:4])
        return None, [Problem("error", flag, f"may be {names}: the parser refuses it.")]
    close = catalogue.close(plain)
    hint = f"Did you mean {close[0]}?" if close else None
    return None, [Problem("error", flag, f"does not exist in {engine}.", hint)]


def _deprecated(flag: str, option: Option) -> list[Problem]:
    if not option.deprecated:
        return []
    fix = f"Use {option.use}." if option.use else "Remove it."
    return [Problem("warning", flag, "is deprecated.", fix)]


def _stray(text: str, before: str) -> Problem:
    return Problem("error", text, f"stands behind {before} and belongs to no option.", "Remove it.")


def _takes_stray(words: list[Word], index: int) -> bool:
    """Whether the word behind a switch was meant as its value."""
    return index < len(words) and words[index].text.lower() in ("true", "false", "1", "0")


def _switch(word: Word, following: Word | None, catalogue: Catalogue) -> list[Problem]:
    option = catalogue.by_flag.get(_plain(word.text, catalogue))
    off = option.off[0] if option is not None and option.off else None
    meant = word.value if word.value is not None else (following.text if following else "")
    if word.value is None and meant.lower() not in ("true", "false", "1", "0"):
        return []
    wants_off = meant.lower() in ("false", "0")
    fix = f"Write {off}." if wants_off and off else f"Write {word.text} alone."
    if wants_off and not off:
        fix = f"Leave {word.text} out."
    text = f"is a switch and takes no value; {meant} does not set it."
    if word.value is None and catalogue.positional:
        text = f"is a switch and takes no value; {meant} would become the model's name."
    return [Problem("error", word.text, text, fix)]


def _value(flag: str, option: Option, value: str) -> list[Problem]:
    if option.none and value == "None":
        return []
    if option.kind == "int" and _integer(option, value) is None:
        units = " or with a unit as in 8k (8,000) and 8K (8,192)" if option.units else ""
        return [Problem("error", flag, f"takes a whole number{units}, not {value}.")]
    if option.kind == "float" and not _NUMBER.match(value):
        return [Problem("error", flag, f"takes a number, not {value}.")]
    if option.kind == "json" and not _is_json(value):
        return [Problem("error", flag, "takes JSON; quote it so that the shell keeps it whole.")]
    if option.choices and value not in option.choices:
        return [Problem("error", flag, f"has no value {value}.", _one_of(option.choices))]
    if option.known and value not in option.known:
        return [Problem("warning", flag, f"has no known value {value}.", _one_of(option.known))]
    return []


def _one_of(values: tuple[str, ...]) -> str:
    more = f" and {len(values) - 8} more" if len(values) > 8 else ""
    return f"It takes {', '.join(values[:8])}{more}."


def _integer(option: Option, value: str) -> int | None:
    if _INTEGER.match(value):
        return int(value)
    if option.name == "--max-model-len" and value == "auto":
        return -1
    human = _HUMAN.match(value) if option.units else None
    if human is None:
        return None
    scale = _BINARY.get(human[2]) or _SCALE[human[2]]
    return int(float(human[1]) * scale)


def _is_json(value: str) -> bool:
    try:
        json.loads(value)
    except ValueError:
        return False
    return True


# --- values and pairs --------------------------------------------------------------------------

# name -> (lowest, highest) that means anything; the parsers check none of these.
_SHARES = ("--gpu-memory-utilization", "--mem-fraction-static")
_POSITIVE = (
    *("--max-num-seqs", "--max-num-batched-tokens", "--tensor-parallel-size"),
    *("--pipeline-parallel-size", "--data-parallel-size", "--block-size"),
    *("--max-running-requests", "--tp-size", "--pp-size", "--dp-size"),
)


def _ranges(uses: dict[str, _Use]) -> Iterator[Problem]:
    for use in uses.values():
        if not isinstance(use.value, str):
            continue
        names = set(use.option.flags)
        if names & set(_SHARES) and _NUMBER.match(use.value):
            if not 0 < float(use.value) <= 1:
                text = f"is a share of the memory above 0 and up to 1, not {use.value}."
                yield Problem("error", use.flag, text, "For example 0.9.")
        elif names & set(_POSITIVE):
            number = _integer(use.option, use.value)
            if number is not None and number < 1:
                yield Problem("error", use.flag, f"must be 1 or more, not {use.value}.")


def _conflicts(uses: dict[str, _Use], catalogue: Catalogue) -> Iterator[Problem]:
    """Pairs that the engine refuses at start, or that make one of them do nothing."""

    def use_of(flag: str) -> _Use | None:
        option = catalogue.by_flag.get(flag)
        return uses.get(option.name) if option is not None else None

    def number(flag: str) -> int | None:
        use = use_of(flag)
        return _integer(use.option, use.value) if use and isinstance(use.value, str) else None

    def switched(flag: str) -> bool | None:
        use = use_of(flag)
        return use.value if use and isinstance(use.value, bool) else None

    if catalogue.engine != "vllm":
        return
    budget, running = number("--max-num-batched-tokens"), number("--max-num-seqs")
    if budget is not None and running is not None and 0 < budget < running:
        text = f"is {budget:,}, fewer than --max-num-seqs {running:,}: the engine does not start."
        yield Problem("error", "--max-num-batched-tokens", text, f"Set {running:,} or more.")
    context = number("--max-model-len")
    whole = switched("--enable-chunked-prefill") is False
    if whole and budget is not None and context and 0 < budget < context:
        text = f"is {budget:,}: without chunked prefill a prompt of {context:,} fits no step."
        yield Problem("error", "--max-num-batched-tokens", text, "Switch chunked prefill on.")
    if switched("--enforce-eager"):
        for flag in ("--max-cudagraph-capture-size", "--cudagraph-capture-sizes"):
            if use_of(flag) is not None:
                text = "has no effect with --enforce-eager, which captures no graphs."
                yield Problem("warning", flag, text, "Remove one of the two.")
    ranks = [number(f"--{kind}-parallel-size") or 1 for kind in ("tensor", "data")]
    if switched("--enable-expert-parallel") and ranks == [1, 1]:
        text = "has no effect on one rank: experts spread over tensor and data ranks."
        yield Problem("warning", "--enable-expert-parallel", text)
