"""One English template and its translation: what it matches and what it makes of that."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

WORD = re.compile(r"[A-Za-z]{2,}")
_PLACEHOLDER = re.compile(r"\{(\d+)\}")


_BRACKETS = re.compile(r" ?[(（]([^()（）]+)[)）]")
_GRAMMAR = re.compile(r"[a-z' ]{0,12}")
_MARK = re.compile(r"^(?:[,;:]|and|but) |^[，；：]")


def parts_of(english: str, translation: str) -> Iterator[tuple[str, str]]:
    """What pages show of a longer text: single sentences, a text without its brackets, what stands
    in them, and a continuation without the mark before it. Only where both languages agree in
    their parts.
    """
    sentences = re.split(r"(?<=[.?]) ", english)
    said = re.findall(r"[^。？]+[。？]?", translation)
    if len(sentences) > 1 and len(sentences) == len(said):
        for pair in zip(sentences, said, strict=True):
            if _fits(*pair):
                yield pair
                yield from _unbracketed(*pair)
    else:
        yield from _unbracketed(english, translation)
    if _MARK.match(english):
        yield _MARK.sub("", english), _MARK.sub("", translation)


def _unbracketed(english: str, translation: str) -> Iterator[tuple[str, str]]:
    inside, said = _BRACKETS.findall(english), _BRACKETS.findall(translation)
    if inside and len(inside) == len(said):
        bare = _BRACKETS.sub("", english), _BRACKETS.sub("", translation)
        for one in (bare, *zip(inside, said, strict=True)):
            if _fits(*one) and WORD.search(_PLACEHOLDER.sub("", one[0])):
                yield one


def _fits(english: str, translation: str) -> bool:
    """Whether every placeholder of the translation is in this part of the text too."""
    return set(_PLACEHOLDER.findall(translation)) <= set(_PLACEHOLDER.findall(english))


@dataclass(frozen=True, slots=True)
class Template:
    """literals: the English text around the placeholders, one more than there are placeholders.

    pieces: the translation; a number stands for the capture of that index.
    """

    literals: tuple[str, ...]
    pieces: tuple[str | int, ...]

    @classmethod
    def of(cls, english: str, translation: str) -> Template:
        """Raises ValueError where the translation has a placeholder that the English has not."""
        source = _pieces(english)
        order = [number for number in source if isinstance(number, int)]
        return cls(
            tuple(p for p in source if isinstance(p, str)),
            tuple(p if isinstance(p, str) else order.index(p) for p in _pieces(translation)),
        )

    @property
    def length(self) -> int:
        """Characters of literal text: the more, the more specific."""
        return sum(map(len, self.literals))

    def words(self) -> set[str]:
        """Whole words that every match has. One that touches a placeholder may go on there."""
        last = len(self.literals) - 1
        found = set()
        for index, literal in enumerate(self.literals):
            for word in WORD.finditer(literal):
                opens = word.start() == 0 and index > 0
                closes = word.end() == len(literal) and index < last
                if not opens and not closes:
                    found.add(word[0].lower())
        return found

    def match(self, text: str) -> tuple[str, ...] | None:
        """What the placeholders hold in `text`, each as short as it can be from the left.

        Looks for one literal after the other, so the time is linear in the text.
        """
        first, *middle = self.literals
        if not middle:
            return () if text == first else None
        last = middle.pop()
        start, end = len(first), len(text) - len(last)
        if start > end or not text.startswith(first) or not text.endswith(last):
            return None
        captures = []
        for literal in middle:
            at = _find(literal, text, start, end)
            if at < 0:
                return None
            captures.append(text[start:at])
            start = at + len(literal)
        return (*captures, text[start:end])

    def match_head(self, text: str) -> tuple[tuple[str, ...], int] | None:
        """As `match`, for a text that goes on: the captures and where the template ends in it.

        Only where the template ends in literal text, so that the end is known.
        """
        first, *rest = self.literals
        if not rest or not rest[-1] or not text.startswith(first):
            return None
        captures, start = [], len(first)
        for literal in rest:
            at = _find(literal, text, start, len(text))
            if at < 0:
                return None
            captures.append(text[start:at])
            start = at + len(literal)
        return tuple(captures), start

    def tells(self, captures: Sequence[str]) -> bool:
        """Whether the translation leaves nothing out but a plural "s", a verb or the like."""
        return all(
            index in self.pieces or _GRAMMAR.fullmatch(capture)
            for index, capture in enumerate(captures)
        )

    def fill(self, captures: Sequence[str]) -> str:
        return "".join(p if isinstance(p, str) else captures[p] for p in self.pieces)


def _find(literal: str, text: str, start: int, end: int) -> int:
    """As `str.find`, but a lone point or comma inside a number is a part of the number."""
    at = text.find(literal, start, end)
    while at > 0 and literal in (".", ",") and text[at - 1 : at + 2 : 2].isdigit():
        at = text.find(literal, at + 1, end)
    return at


def _pieces(text: str) -> list[str | int]:
    """Text and placeholder in turn: "a {0} b" -> ["a ", 0, " b"], "{0}" -> ["", 0, ""]."""
    parts: list[str | int] = []
    # split() with one group: text, number, text, …
    for index, part in enumerate(_PLACEHOLDER.split(text.replace("{{", "\0").replace("}}", "\1"))):
        literal = part.replace("\0", "{").replace("\1", "}")
        parts.append(int(part) if index % 2 else literal)
    return parts
