"""Says an English sentence that the product built in another language: `say(text, "zh-hans")`.

A text is looked up as it stands, then taken apart: by the template that explains most of it, whose
placeholders are said in the same way, then at full stops, semicolons and commas. What nothing
explains stays English. For texts that the product builds, never for what users typed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from gettext import GNUTranslations
from pathlib import Path
from typing import NamedTuple

from advisor.i18n.template import WORD, Template, parts_of

ENGLISH = "en"
LOCALE_DIR = Path(__file__).resolve().parents[1] / "locale"
DOMAIN = "sentences"

LONGEST = 2_000
"""Characters; a longer text is no sentence and stays as it is."""
_DEEPEST = 4
_MOST_CANDIDATES = 24
_MOST_PIECES = 14
_TOLERATED = 0.34
_MOST_WORDS = 24
_LONGEST_RUN = 6
_REMEMBERED = 20_000

Names = frozenset[str]

# Weak joints last. The second is what stands there between two translated pieces.
_JOINTS = (
    ("\n", "\n"),
    (". ", "。"),
    ("; ", "；"),
    (": ", "："),
    (" = ", " = "),
    (", ", "，"),
    (" · ", " · "),
    (" → ", " → "),
    (" and ", "和"),
)
_ASIDE = re.compile(r"(.*\S) \(([^()]+)\)(\.?)", re.DOTALL)
# A word of prose; what touches one of these marks is a name, a flag, a path or code.
_PROSE = re.compile(r"(?<![\w./=`'\"@\-])[A-Za-z][a-z]+(?![\w/=`@]|[.\-]\w)")
_UNITS = frozenset({"ms", "ns", "min", "tok", "req"})
_TELLING = 12
_HAN = re.compile("[\u4e00-\u9fff]")
_SIGNS = "，。；：（）、！？"
_NBSP = "\u00a0"
_STOPS = ".:"
_WIDE = {",": "，", ";": "；", ":": "：", ".": "。"}
_COMMA = re.compile("([,;:]) +(?=[\u4e00-\u9fff])")
_STRONG_JOINT = re.compile(r"[.,;:] ")
_UNIT = re.compile(r"(?<=\d) (?=[A-Za-z%µ°])")
_NO_SPACE = re.compile(f"(?<=[\u4e00-\u9fff{_SIGNS}]) +(?=[\u4e00-\u9fff{_SIGNS}])")
_SPACE_MISSING = re.compile(
    "(?<=[\u4e00-\u9fff])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9%])(?=[\u4e00-\u9fff])"
)
_NUMBERED = re.compile(r"([−–+≤≥<>~]?\s?[\d][\d.,]*[\s\u00a0])([A-Za-z].*)", re.DOTALL)


class Said(NamedTuple):
    """A translation. left: words of English prose in it; parts: entries that it was made of."""

    text: str
    left: float
    parts: int


class Sentences:
    """The catalogue of one language. translations: English template -> template there."""

    def __init__(self, translations: Mapping[str, str]) -> None:
        self._exact: dict[str, str] = {}
        self._rare: dict[str, list[int]] = {}
        self._loose: list[int] = []
        self._templates = self._sorted(translations)
        self._index()
        self._resolve = lru_cache(maxsize=_REMEMBERED)(self._resolved)

    def say(self, text: str, names: Names = frozenset()) -> str:
        """`text` in this language, with the white space around it as it was.

        names: what users named; it stays as it is where a placeholder holds it.
        """
        inner = text.strip()
        if len(inner) > LONGEST or not WORD.search(inner):
            return text
        said = self.read(inner, names).text
        if said == inner.replace(_NBSP, " "):
            return text
        head = text[: len(text) - len(text.lstrip())]
        tail = text[len(text.rstrip()) :]
        return f"{head}{_spaced(said)}{tail}"

    def read(self, text: str, names: Names = frozenset()) -> Said:
        """How `text` is understood, before the result is set with its spaces."""
        return self._resolve(text.replace(_NBSP, " "), 0, names)

    @property
    def templates(self) -> list[Template]:
        return self._templates

    @property
    def readings(self) -> int:
        """How many texts and parts of texts were read so far: the work that was done."""
        return self._resolve.cache_info().misses

    # --- the catalogue -------------------------------------------------------------------------

    def _sorted(self, translations: Mapping[str, str]) -> list[Template]:
        """Templates, the most specific first; texts without a placeholder go to `_exact`."""
        templates: dict[tuple[str, ...], Template] = {}
        pairs = [(k.replace(_NBSP, " "), v) for k, v in translations.items()]
        parts = [pair for whole in pairs for pair in parts_of(*whole)]
        for english, translation in (*pairs, *parts):
            template = Template.of(english, translation)
            if len(template.literals) == 1:
                said = template.fill(())
                self._exact.setdefault(template.literals[0], said)
                self._exact.setdefault(_plain(template.literals[0]), _without_end(english, said))
            else:
                literals = template.literals
                bare = (_lower(literals[0]), *literals[1:-1], literals[-1].rstrip(_STOPS))
                pieces = Template.of(english, _without_end(english, translation)).pieces
                templates.setdefault(bare, Template(bare, pieces))
        return sorted(templates.values(), key=lambda one: -one.length)

    def _index(self) -> None:
        """Each template below its rarest word, so that a text meets few of them."""
        words = [template.words() for template in self._templates]
        frequency: dict[str, int] = {}
        for found in words:
            for word in found:
                frequency[word] = frequency.get(word, 0) + 1
        for number, found in enumerate(words):
            if found:
                rarest = min(found, key=lambda word: (frequency[word], word))
                self._rare.setdefault(rarest, []).append(number)
            else:
                self._loose.append(number)

    def _candidates(self, text: str) -> Iterator[Template]:
        numbers = set(self._loose)
        for word in WORD.finditer(text):
            numbers.update(self._rare.get(word[0].lower(), ()))
        return (self._templates[number] for number in sorted(numbers))

    # --- one text ------------------------------------------------------------------------------

    def _resolved(self, text: str, depth: int, names: Names) -> Said:
        if text in names:
            return Said(text, 0.0, 0)
        found = self._looked_up(text)
        if found is not None:
            return Said(found, 0.0, 1)
        as_it_is = _unsaid(text)
        if not as_it_is.left or depth > _DEEPEST:
            return as_it_is
        best = self._by_template(text, depth, names)
        # One sentence with plain values is as good as it gets; else its parts may say it better.
        if best.left or best.parts > 1:
            others = (self._by_mark, self._by_head, self._by_pieces)
            best = min((best, *(way(text, depth, names) for way in others)), key=_cost)
        # Half a translation is harder to read than the original.
        return best if best.left <= _TOLERATED * as_it_is.left else as_it_is

    def _looked_up(self, text: str) -> str | None:
        found = self._exact.get(text)
        if found is not None:
            return found
        plain = self._exact.get(_plain(text))
        return None if plain is None else plain + _end(text)

    def _by_template(self, text: str, depth: int, names: Names) -> Said:
        bare, end = _plain(text), _end(text)
        best = _unsaid(text)
        tried = 0
        for template in self._candidates(bare):
            # A placeholder at the start may hold a name, whose capital stays.
            first = bare[:1] if template.literals[0] else text[:1]
            captures, stop = template.match(first + bare[1:]), end
            if captures is None and end:
                # The full stop may belong to the template, with a placeholder behind it.
                captures, stop = template.match(first + text[1:]), ""
            if captures is None or not template.tells(captures):
                continue
            said = [self._captured(capture, depth, names) for capture in captures]
            left = sum(one.left for one in said)
            # With few words of its own a template says little about what it matched.
            left += 0.0 if not left or template.length > _TELLING else 1.0
            if left < best.left:
                filled = template.fill([one.text for one in said])
                best = Said(f"{filled}{stop}", left, 1 + sum(one.parts for one in said))
            tried += 1
            if not best.left or tried >= _MOST_CANDIDATES:
                break
        return best

    def _captured(self, capture: str, depth: int, names: Names) -> Said:
        inner = capture.strip()
        if not inner:
            return Said(capture, 0.0, 0)
        said = self._resolve(inner, depth + 1, names)
        if _STRONG_JOINT.search(inner):
            # Two parts of a text in one placeholder are seldom what the template meant.
            said = said._replace(parts=said.parts + 2)
        if said.text == inner:
            # One word that nothing explains is most often a name.
            return Said(capture, said.left if said.left > 1 else 0.2 * said.left, said.parts)
        return said._replace(text=capture.replace(inner, said.text, 1))

    def _by_mark(self, text: str, depth: int, names: Names) -> Said:
        """What stands behind a number or before a bracket: "3 failing", "Peak (measured)"."""
        if numbered := _NUMBERED.fullmatch(text):
            rest = self._resolve(numbered[2], depth + 1, names)
            # Dearer than a template, which knows where the number belongs.
            return Said(f"{numbered[1]}{rest.text}", rest.left, rest.parts + 1)
        if aside := _ASIDE.fullmatch(text):
            said, inner = (self._resolve(aside[n], depth + 1, names) for n in (1, 2))
            end = "。" if aside[3] else ""
            return _both(said, inner, f"{said.text}（{inner.text}）{end}")
        return _unsaid(text)

    def _by_head(self, text: str, depth: int, names: Names) -> Said:
        """A known beginning, then the rest: "running requests 8"."""
        at = len(text)
        for _ in range(_MOST_WORDS):
            at = text.rfind(" ", 0, at)
            if at <= 0:
                break
            head = self._looked_up(text[:at])
            if head is not None and not text[:at].endswith((".", ",", ";", ":")):
                rest = self._resolve(text[at + 1 :], depth + 1, names)
                return _both(Said(head, 0.0, 1), rest, f"{head} {rest.text}")
        return self._by_template_head(text, depth, names)

    def _by_template_head(self, text: str, depth: int, names: Names) -> Said:
        bare = _lower(text)
        for template in self._candidates(bare):
            if template.length <= _TELLING:
                break
            first = bare[:1] if template.literals[0] else text[:1]
            found = template.match_head(first + bare[1:])
            if found is None or bare[found[1] : found[1] + 1] != " ":
                continue
            if not template.tells(found[0]):
                continue
            said = [self._captured(capture, depth, names) for capture in found[0]]
            rest = self._resolve(text[found[1] + 1 :], depth + 1, names)
            filled = f"{template.fill([one.text for one in said])} {rest.text}"
            left = rest.left + sum(one.left for one in said)
            return Said(filled, left, 1 + rest.parts + sum(one.parts for one in said))
        return _unsaid(text)

    def _by_pieces(self, text: str, depth: int, names: Names) -> Said:
        """Cut at the strongest joint at which the pieces are sentences."""
        best = _unsaid(text)
        for joint, mark in _JOINTS:
            pieces = text.split(joint)
            if 1 < len(pieces) <= _MOST_PIECES:
                best = min(best, self._joined(pieces, joint, mark, depth, names), key=_cost)
                if not best.left:
                    break
        return best

    def _joined(self, pieces: list[str], joint: str, mark: str, depth: int, names: Names) -> Said:
        """The cheapest way to read the pieces as runs that are one sentence each."""
        best = [Said("", 0.0, 0)]
        for end in range(1, len(pieces) + 1):
            ways = []
            for start in range(max(0, end - _LONGEST_RUN), end):
                run = self._run(joint.join(pieces[start:end]), end - start, depth, names)
                if run is not None:
                    before = best[start]
                    between = "" if not start else joint if run.left or before.left else mark
                    ways.append(_both(before, run, f"{before.text}{between}{run.text}"))
            best.append(min(ways, key=_cost))
        return best[-1]

    def _run(self, text: str, count: int, depth: int, names: Names) -> Said | None:
        """`count` pieces as one sentence; None where they are none. One piece is always one."""
        if count == 1:
            return self._resolve(text, depth + 1, names)
        found = self._looked_up(text)
        if found is not None:
            return Said(found, 0.0, 1)
        said = self._by_template(text, depth + 1, names)
        return None if said.left else said


def _unsaid(text: str) -> Said:
    """All of it is left. A capital inside a text is most often that of a name."""
    found = [w for w in _PROSE.finditer(text) if w[0] not in _UNITS]
    left = sum(1.0 for word in found if not word.start() or word[0].islower())
    return Said(text, left, 1 if left else 0)


def _both(first: Said, second: Said, text: str) -> Said:
    return Said(text, first.left + second.left, first.parts + second.parts)


def _cost(said: Said) -> tuple[float, int]:
    return said.left, said.parts


def _spaced(text: str) -> str:
    """Chinese as it is set: a space beside Latin letters and digits, none elsewhere."""
    text = _NO_SPACE.sub("", text)
    text = _SPACE_MISSING.sub(" ", _COMMA.sub(lambda mark: _WIDE[mark[1]], text))
    # A number keeps its unit on its line.
    text = _UNIT.sub(_NBSP, text)
    return f"{text[:-1]}。" if text.endswith(".") and _HAN.search(text) else text


def _lower(text: str) -> str:
    """Without the capital of a sentence's start; names such as KV keep theirs."""
    return text[0].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def _plain(text: str) -> str:
    return _lower(text.rstrip(_STOPS))


def _without_end(english: str, translation: str) -> str:
    return translation.rstrip("。：:.") if english.endswith(tuple(_STOPS)) else translation


def _end(text: str) -> str:
    return _WIDE.get(text[-1:], "") if text.endswith(tuple(_STOPS)) else ""


# --- languages ---------------------------------------------------------------------------------

_names: ContextVar[Names] = ContextVar("what users named", default=frozenset())
_language: ContextVar[str] = ContextVar("language of what is being made", default=ENGLISH)


def locale_of(language: str) -> str:
    """The folder of a language: "zh-hans" -> "zh_Hans"."""
    name, _, variant = language.lower().partition("-")
    return f"{name}_{variant.title() if len(variant) > 2 else variant.upper()}" if variant else name


@lru_cache(maxsize=8)
def catalogue(language: str) -> Sentences | None:
    """The sentences of a language; None where there are none, as for English."""
    path = LOCALE_DIR / locale_of(language) / "LC_MESSAGES" / f"{DOMAIN}.mo"
    if not path.is_file():
        return None
    with path.open("rb") as file:
        # The standard library reads the file but has no public way to list what is in it.
        entries: dict[object, str] = GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    return Sentences({k: v for k, v in entries.items() if isinstance(k, str) and k and v})


def say(text: str, language: str, names: Names = frozenset()) -> str:
    """`text` in `language`; as it is in English, and in a language without a catalogue.

    names: what users named; never translated.
    """
    found = catalogue(language)
    return text if found is None or text in names else found.say(text, names)


@contextmanager
def speaking(language: str, names: Collection[str] = ()) -> Iterator[None]:
    """Within this, `spoken` says in `language`; in English where it has no catalogue.

    names: what users named, never translated.
    """
    known = language if catalogue(language) is not None else ENGLISH
    tokens = _language.set(known), _names.set(frozenset(names))
    try:
        yield
    finally:
        _language.reset(tokens[0])
        _names.reset(tokens[1])


def language_spoken() -> str:
    return _language.get()


def spoken(text: str) -> str:
    """`text` in the language of the surrounding `speaking`; English without one."""
    return say(text, _language.get(), _names.get())
