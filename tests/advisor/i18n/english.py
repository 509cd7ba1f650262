"""Finds English prose that is left in a page of another language."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

# Code, commands and logs are nobody's prose; a language switch names the other language.
_SILENT = {"script", "style", "code", "pre", "kbd", "datalist"}
_VOID = {"br", "hr", "img", "input", "link", "meta", "source", "wbr"}
_SAID = {"aria-label", "title", "placeholder", "alt", "data-label"}
_WORD = r"(?<![\w./=@\-])[A-Za-z]?[a-z]{2,}(?![\w/=@]|[.\-]\w)"
_RUN = re.compile(rf"{_WORD}(?:[ ,:;.()“”]+{_WORD}){{2,}}")


_DRAWN = {"text", "hovertemplate", "ticktext", "label", "title"}
_FORMAT = re.compile(r"%\{[^}]*\}|<[^>]*>")


def _drawn(value: Any, key: str = "") -> list[str]:
    """What a figure shows in its boxes and beside its axes."""
    if isinstance(value, dict):
        return [text for name, inner in value.items() for text in _drawn(inner, name)]
    if isinstance(value, list):
        return [text for inner in value for text in _drawn(inner, key)]
    return [_FORMAT.sub("·", value)] if isinstance(value, str) and key in _DRAWN else []


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, bool]] = []
        self.texts: list[str] = []
        self.figure = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.texts += [value for name, value in attrs if name in _SAID and value]
        self.figure = tag == "script" and (dict(attrs).get("id") or "").startswith("fig-")
        if tag not in _VOID:
            # What is marked as English is meant to be: names in other tools, the language switch.
            english = (dict(attrs).get("lang") or "").startswith("en")
            self.open.append((tag, tag in _SILENT or (english and tag != "html")))

    def handle_endtag(self, tag: str) -> None:
        if any(tag == name for name, _ in self.open):
            while self.open.pop()[0] != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self.figure:
            self.figure = False
            self.texts += _drawn(json.loads(data))
        if not any(silent for _, silent in self.open):
            self.texts.append(data.strip())


def english_left(html: str, names: tuple[str, ...] = ()) -> list[str]:
    """Texts and labels with three English words in a row; `names` are taken out before."""
    parser = _Texts()
    parser.feed(html)
    found = []
    for text in dict.fromkeys(parser.texts):
        bare = text
        for name in ("LLM Tuning Advisor", *names):
            bare = bare.replace(name, "")
        if _RUN.search(bare):
            found.append(text)
    return found
