"""A workload as a list of ready-made request bodies, fixed before the first is sent.

Lengths, arrival times and prompts follow from the spec and the seed; JSON is encoded here, so that
sending only copies bytes. Every cell of a study takes its own seed: a prefix cache that saw one
cell's prompts has not seen the next one's.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gpuagent.errors import ConfigError
from gpuagent.experiments.requests import draw_length
from gpuagent.wire import LengthSpec

Api = Literal["completions", "chat"]
PATHS: dict[Api, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
# Words of English text a token, for endpoints whose tokenizer is not at hand. The record takes the
# server's own count, so this only decides how long prompts come out.
_WORDS_PER_TOKEN = 0.75
_LONGEST_FILE_BYTES = 256 * 1024 * 1024

Draw = Callable[[random.Random], int]


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """intended_s: seconds after the start; None in a closed loop. body: the JSON to be posted.

    input_tokens: as planned; the server's count replaces it where it reports one. history: what was
    said so far, user and model in turns, this turn's prompt last. turn: 0 for the first.
    """

    intended_s: float | None
    body: bytes
    input_tokens: int
    output_tokens: int
    history: tuple[str, ...] = ()
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """How every request asks. model: name at the server. extra: further JSON fields.

    ignore_eos: generate all tokens; vLLM and SGLang know it, hosted endpoints refuse it.
    """

    model: str
    api: Api = "completions"
    ignore_eos: bool = True
    extra: tuple[tuple[str, Any], ...] = ()

    def body(
        self,
        prompt: str | Sequence[int],
        output_tokens: int,
        *,
        history: Sequence[str] = (),
    ) -> bytes:
        """The JSON of one request; `history` is what came before `prompt`, user first."""
        asked: dict[str, Any] = {"model": self.model}
        if self.api == "chat":
            asked["messages"] = [
                {"role": "assistant" if i % 2 else "user", "content": said}
                for i, said in enumerate((*history, prompt))
            ]
        elif isinstance(prompt, str):
            asked["prompt"] = "\n".join((*history, prompt))
        else:
            asked["prompt"] = list(prompt)
        asked |= {
            "max_tokens": output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.ignore_eos:
            asked["ignore_eos"] = True
        asked |= dict(self.extra)
        return json.dumps(asked, ensure_ascii=False, separators=(",", ":")).encode()


def uniform(low: int, high: int) -> Draw:
    """Lengths from low to high tokens, both included."""
    if not 1 <= low <= high:
        raise ValueError(f"uniform lengths: {low} to {high} is no range of at least 1 token")
    return lambda rng: rng.randint(low, high)


def empirical(values: Sequence[int]) -> Draw:
    """Lengths drawn with replacement from what was seen in real traffic."""
    if not values or min(values) < 1:
        raise ValueError("empirical lengths: give at least one length, each 1 token or more")
    return lambda rng: rng.choice(values)


def from_spec(spec: LengthSpec) -> Draw:
    """Lengths of the wire's own distribution."""
    return lambda rng: draw_length(spec, rng)


def write_lengths(spec: LengthSpec) -> str:
    """The distribution as `read_lengths` reads it."""
    if spec.kind == "fixed":
        return str(spec.mean)
    return ":".join(str(part) for part in ("lognormal", spec.mean, spec.p95, spec.maximum) if part)


def read_lengths(text: str) -> Draw:
    """`256`, `uniform:64:512`, `lognormal:MEAN:P95[:MAXIMUM]`, or `file:PATH`, one length a line.

    Raises ConfigError with the accepted forms.
    """
    kind, _, rest = text.partition(":")
    try:
        if kind == "uniform":
            low, high = rest.split(":")
            return uniform(int(low), int(high))
        if kind == "lognormal":
            mean, p95, *most = (int(part) for part in rest.split(":"))
            maximum = most[0] if most else None
            return from_spec(LengthSpec(kind="lognormal", mean=mean, p95=p95, maximum=maximum))
        if kind == "file":
            return empirical([int(line) for line in _read(Path(rest)).split()])
        return from_spec(LengthSpec(mean=int(text)))
    except ValueError as error:
        forms = "a number, uniform:LOW:HIGH, lognormal:MEAN:P95 or file:PATH"
        raise ConfigError(f"length {text!r}: give {forms} ({str(error).splitlines()[0]})") from None


class TextPrompts:
    """Prompts cut from a text, each opening with words of its own.

    encode: gives token ids, which are sent as they are and have exactly the length asked for; None
    sends words. shared_prefix_frac: share of each prompt that all prompts have in common.
    """

    def __init__(
        self,
        text: str,
        *,
        encode: Callable[[str], list[int]] | None = None,
        shared_prefix_frac: float = 0.0,
        seed: int = 0,
    ) -> None:
        if not 0 <= shared_prefix_frac < 1:
            raise ConfigError(f"shared prefix: {shared_prefix_frac:g} is not within 0 to below 1")
        self._encoded = encode is not None
        self._units: list[Any] = encode(text) if encode else text.split()
        if not self._units:
            raise ConfigError("the prompt text is empty")
        self._shared_frac = shared_prefix_frac
        self._shared_rng_seed = seed

    def take(self, tokens: int, rng: random.Random) -> str | list[int]:
        size = tokens if self._encoded else max(1, round(tokens * _WORDS_PER_TOKEN))
        shared = int(size * self._shared_frac)
        # A text is short and slices overlap, so every prompt opens with units in an order of its
        # own: the first cache block then differs, and with it all that follow.
        opening = [rng.choice(self._units) for _ in range(min(16, size - shared))]
        start = rng.randrange(len(self._units))
        rest = size - shared - len(opening)
        units = [*self._prefix(shared), *opening, *self._slice(start, rest)]
        return units if self._encoded else " ".join(units)

    def _prefix(self, size: int) -> list[Any]:
        first = random.Random(self._shared_rng_seed).randrange(len(self._units))  # noqa: S311
        return self._slice(first, size)

    def _slice(self, start: int, size: int) -> list[Any]:
        count = len(self._units)
        return [self._units[(start + offset) % count] for offset in range(size)]


class FilePrompts:
    """Prompts of a JSONL file (`prompt`, `text` or chat `messages` in each line), in random order.

    Their lengths are their own; asked-for input lengths are ignored.
    """

    def __init__(self, path: Path) -> None:
        self._prompts: list[str] = []
        for number, line in enumerate(_read(path).splitlines(), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                messages = row.get("messages") or [{}]
                prompt = row.get("prompt") or row.get("text") or messages[-1].get("content")
            except (ValueError, AttributeError, TypeError):
                prompt = None
            if not isinstance(prompt, str) or not prompt:
                raise ConfigError(f"{path}, line {number}: needs a JSON object with a `prompt`")
            self._prompts.append(prompt)
        if not self._prompts:
            raise ConfigError(f"{path} holds no prompts")

    def take(self, tokens: int, rng: random.Random) -> str:
        return rng.choice(self._prompts)


class Planner:
    """Makes requests one after the other; the same seed makes the same ones again.

    Raises ConfigError for token ids in a chat request: chat sends text.
    """

    def __init__(
        self,
        *,
        input_tokens: Draw,
        output_tokens: Draw,
        prompts: TextPrompts | FilePrompts,
        asked: Asked,
        seed: int,
    ) -> None:
        self._inputs, self._outputs = input_tokens, output_tokens
        self._prompts, self._asked = prompts, asked
        self._rng = random.Random(seed)  # noqa: S311  reproducible draws, nothing secret

    def next(
        self,
        at_s: float | None = None,
        *,
        lengths: tuple[int, int] | None = None,
        history: tuple[str, ...] = (),
    ) -> LoadRequest:
        """The next request, to be sent at `at_s`. lengths: input and output tokens of a log.
        history: what was said before it, which it is sent with."""
        outputs, inputs = self._outputs(self._rng), self._inputs(self._rng)
        if lengths is not None:
            inputs, outputs = lengths
        prompt = self._prompts.take(inputs, self._rng)
        if self._asked.api == "chat" and not isinstance(prompt, str):
            raise ConfigError(
                "chat requests need text: leave the tokenizer out, or use completions"
            )
        if isinstance(self._prompts, FilePrompts) and isinstance(prompt, str):
            inputs = max(1, round(len(prompt.split()) / _WORDS_PER_TOKEN))
        body = self._asked.body(prompt, outputs, history=history)
        said = (*history, prompt) if isinstance(prompt, str) else ()
        inputs += round(sum(len(text.split()) for text in history) / _WORDS_PER_TOKEN)
        return LoadRequest(at_s, body, inputs, outputs, said)

    def at_times(self, times_s: Sequence[float]) -> list[LoadRequest]:
        """One request for each intended send time."""
        return [self.next(at_s) for at_s in times_s]


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _LONGEST_FILE_BYTES:
            raise ConfigError(f"{path} is larger than {_LONGEST_FILE_BYTES // 2**20} MiB")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror})") from error
