"""Finds the sentences that the product builds in Python, by reading its source.

Nothing is marked in the source: the pure packages and the agent write plain English, and the text
itself is the key of its translation. An f-string becomes a template with `{0}`, `{1}` … for its
placeholders in order; literal braces are doubled, as in `str.format`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from advisor.i18n.words import COMPOSED, WORDS

SKIPPED = {
    "advisor/api": "answers to programs stay English",
    "advisor/cli": "the command line stays English",
    "advisor/ops": "the operator's console stays English",
    "advisor/i18n": "this package",
    "advisor/settings": "configuration",
    "gpuagent/__main__": "the agent's command line",
    "gpuagent/client": "the agent's log",
    "gpuagent/config": "the agent's console",
    "gpuagent/demo_model": "the agent's console",
    "gpuagent/load": "the load tool's command line",
}
"""Beginnings of paths whose texts no page shows, with the reason. Migrations are left out too."""

_WORDS = "advisor/i18n/words.py"
_GETTEXT = {"gettext", "_", "gettext_lazy", "ngettext", "pgettext"}
_LOGGING = {"debug", "info", "warning", "error", "exception", "critical", "log"}
_NO_TEXT = {"compile", "getLogger", "AssertionError", "TypeError", "NotImplementedError"}
_NOT_SHOWN = _GETTEXT | _LOGGING | _NO_TEXT
_LONE_WORD = re.compile(r"[A-Z][a-z]{2,}(?:-[a-z]{2,})*")
_PLACEHOLDER = re.compile(r"(?<!\{)\{(\d+)\}")
_FRAGMENT = re.compile(r"[a-z]{4,}")
# Texts of plotly's boxes: they hold line breaks, and values as %{x}.
_HOVER = re.compile(r"<br>|^%\{")
_HOVER_WORD = re.compile(r"(?<![\w{])[A-Za-z][a-z]{3,}(?![\w}])")
_NO_PROSE_START = ("-", ".", "#", "SELECT", "%")
_PATH = re.compile(r"/\S*(?: \S+){0,2}")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One text for people. holds: source of what stands for {0}, {1} …; file: where it is first."""

    text: str
    holds: tuple[str, ...]
    file: str


def sentences_of(root: Path) -> list[Sentence]:
    """Every sentence of both packages below `root`, once, in order of file and line."""
    found = {text: Sentence(text, (), _WORDS) for text in (*WORDS, *COMPOSED)}
    for package in ("advisor", "gpuagent"):
        for path in sorted((root / package).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if "/migrations/" in name or name.startswith(tuple(SKIPPED)):
                continue
            for sentence in sentences_in(path.read_text(encoding="utf-8"), name):
                found.setdefault(sentence.text, sentence)
    return list(found.values())


def sentences_in(source: str, file: str = "") -> Iterator[Sentence]:
    """The sentences of one module. Raises SyntaxError where it is no Python."""
    tree = ast.parse(source)
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text, holds = _template(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A lone string is documentation; one inside an f-string is a part of it.
            if isinstance(parents[node], ast.Expr | ast.JoinedStr):
                continue
            text, holds = _doubled(node.value), ()
        else:
            continue
        above = list(_above(node, parents))
        if (
            any(_is_export(one) for one in above)
            or any(_called(call) in _NOT_SHOWN for call in above)
            or _is_key(node, text, parents)
        ):
            continue
        is_choice = isinstance(parents[node], ast.IfExp)
        inside = any(isinstance(one, ast.FormattedValue) for one in above)
        if (is_choice and inside and _FRAGMENT.match(text)) or is_prose(text):
            yield Sentence(text.strip(), holds, file)
        elif _HOVER.search(text):
            yield from _hover_lines(text, holds, file)


def is_prose(text: str) -> bool:
    """Whether a template reads as a text for people rather than as a name, path or pattern."""
    text = text.strip()
    if _LONE_WORD.fullmatch(text):
        return True
    if "\\" in text or ("<" in text and ">" in text) or text.startswith(_NO_PROSE_START):
        return False
    if _PATH.fullmatch(text):
        return False
    literal = re.sub(r"\{\d+\}", "", text)
    return " " in text and re.search("[a-z]{2}", literal) is not None


def _hover_lines(text: str, holds: tuple[str, ...], file: str) -> Iterator[Sentence]:
    """Each line of a text that plotly shows beside the pointer, with placeholders of its own."""
    for line in re.split(r"<[^>]*>", text):
        used: list[str] = []

        def own(found: re.Match[str], used: list[str] = used) -> str:
            used.append(holds[int(found[1])])
            return f"{{{len(used) - 1}}}"

        line = _PLACEHOLDER.sub(own, line).strip()
        if _HOVER_WORD.search(_PLACEHOLDER.sub("", line)):
            yield Sentence(line, tuple(used), file)


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _template(node: ast.JoinedStr) -> tuple[str, tuple[str, ...]]:
    parts: list[str] = []
    holds: list[str] = []
    for value in node.values:
        if isinstance(value, ast.FormattedValue):
            parts.append(f"{{{len(holds)}}}")
            holds.append(ast.unparse(value.value))
        elif isinstance(value, ast.Constant):
            parts.append(_doubled(str(value.value)))
    return "".join(parts), tuple(holds)


def _above(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    """What a string stands in, up to its function or class."""
    while node in parents:
        node = parents[node]
        yield node
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            return


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    called = node.func
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""


def _is_export(node: ast.AST) -> bool:
    """Whether it is the list of a module's public names."""
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
    )


def _is_key(node: ast.AST, text: str, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether a lone word selects or is compared with something: `row["Name"]`, `x == "Name"`."""
    if not isinstance(node, ast.Constant) or " " in text:
        return False
    inner: ast.AST = node
    for outer in _above(node, parents):
        if isinstance(outer, ast.Compare):
            return True
        if isinstance(outer, ast.Subscript) and inner is not outer.value:
            return True
        if isinstance(outer, ast.FunctionDef | ast.ClassDef):
            return False
        inner = outer
    return False
