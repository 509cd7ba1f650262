"""Text that holds names nobody checked: comments of one line, YAML, names of Kubernetes objects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

# Words and numbers that some reader of YAML takes for something else than text stay quoted.
_PLAIN = re.compile(
    r"(?!(?:y|n|yes|no|on|off|true|false|null|inf|nan)$)[a-z][a-z0-9_./-]*",
    re.IGNORECASE | re.ASCII,
)


def comment(text: str) -> str:
    """`text` on one line behind "# ": no name ends the comment, nor joins the next line to it."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    return f"# {' '.join(plain.split()).rstrip(chr(92))}"


def comments(lines: Iterable[str]) -> str:
    return "".join(f"{comment(line)}\n" for line in lines)


def yaml_text(*documents: Mapping[str, Any]) -> str:
    """YAML in which every text is quoted unless it is a plain word, so that readers agree on it."""
    return yaml.dump_all(
        documents,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=1_000_000,
        explicit_start=len(documents) > 1,
    )


class _Dumper(yaml.SafeDumper):
    """SafeDumper without anchors, with sequences indented below their key."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = None if _PLAIN.fullmatch(value) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def escape_dollars(words: Iterable[str]) -> list[str]:
    """For compose and Kubernetes, which both put variables into arguments, and read $$ as $."""
    return [word.replace("$", "$$") for word in words]


def object_name(text: str, *, limit: int = 40) -> str:
    """A DNS label (RFC 1123) made of `text`; "model" where nothing of it may stand in one."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:limit].strip("-")
    return words or "model"
