"""Finds English prose that is left in a page of another language."""

from __future__ import annotations

import re
from html.parser import HTMLParser

# Code, commands and logs are nobody's prose; a language switch names the other language.
_SILENT = {"script", "style", "code", "pre", "kbd", "datalist"}
_VOID = {"br", "hr", "img", "input", "link", "meta", "source", "wbr"}
_SAID = {"aria-label", "title", "placeholder", "alt", "data-label"}
_WORD = re.compile(r"(?<![\w./=@\-])[A-Za-z]?[a-z]{2,}(?![\w/=@]|[.\-]\w)")


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.texts += [value for name, value in attrs if name in _SAID and value]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not _SILENT & set(self.open):
            self.texts.append(data.strip())


def english_left(html: str, allowed: frozenset[str] = frozenset()) -> list[str]:
    """Texts and labels with three English words or more; `allowed`: words that are names."""
    parser = _Texts()
    parser.feed(html)
    found = []
    for text in parser.texts:
        words = [w for w in _WORD.findall(text) if len(w) > 2 and w.lower() not in allowed]
        if len(words) >= 3:
            found.append(text)
    return list(dict.fromkeys(found))
