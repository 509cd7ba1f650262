"""The configuration as a shell command of vLLM or SGLang."""

from __future__ import annotations

import shlex

from advisor.exports.arguments import start_words
from advisor.exports.document import ExportDocument
from advisor.exports.header import header
from advisor.exports.text import comments


def to_command(document: ExportDocument) -> bytes:
    """Comments, then one command: a line for each setting, every word quoted for a shell."""
    first = [*start_words(document.engine), *document.model.words(document.engine, folder=".")]
    lines = [shlex.join(first)]
    lines += [f"    {shlex.join(flag.words)}" for flag in document.flags if flag.words]
    return (comments(header(document)) + " \\\n".join(lines) + "\n").encode()
