"""The text that prompts and perplexity are made of: a file on the agent, or the built-in passage.

The text is data: it is read, tokenised and hashed, never interpreted. See SOURCE.md for where the
built-in passage comes from.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from gpuagent.errors import AgentError
from gpuagent.wire import FailureReason

BUILT_IN = "as_you_like_it_act_1.txt"
BUILT_IN_NAME = "built-in: Shakespeare, As You Like It, Act I"
VARIABLE = "GPUAGENT_TEXT"
MAX_TEXT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Passage:
    """A text with its name and the hash that lets two measurements be compared."""

    name: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def built_in() -> Passage:
    """The passage that ships with the package; some 30 kB, 8,000 tokens."""
    text = resources.files(__name__).joinpath(BUILT_IN).read_text(encoding="utf-8")
    return Passage(name=BUILT_IN_NAME, text=text)


def load(text_path: str | None) -> Passage:
    """The text at `text_path`; for None the agent's own ($GPUAGENT_TEXT), else the built-in one.

    Raises AgentError(config_error) for a missing, empty, too large or undecodable file.
    """
    text_path = text_path or os.environ.get(VARIABLE)
    if not text_path:
        return built_in()
    path = Path(text_path).expanduser()
    try:
        if not path.is_file():
            raise _refused(f"text_path: there is no file {text_path} on this agent")
        if path.stat().st_size > MAX_TEXT_BYTES:
            limit_mib = MAX_TEXT_BYTES // 2**20
            raise _refused(f"text_path: {text_path} is larger than {limit_mib} MiB, use a part")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _refused(f"text_path: {text_path} is not UTF-8 text") from error
    except OSError as error:
        raise _refused(f"text_path: {text_path} cannot be read ({error.strerror})") from error
    if not text.strip():
        raise _refused(f"text_path: {text_path} is empty")
    # The parent folder tells "wikitext-2/test.txt" from any other test.txt.
    return Passage(name=f"{path.parent.name}/{path.name}"[-200:], text=text)


def _refused(message: str) -> AgentError:
    return AgentError(FailureReason.CONFIG_ERROR, message)
