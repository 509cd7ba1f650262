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

from advisor.i18n.template import WORD, Template

ENGLISH = "en"
LOCALE_DIR = Path(__file__).resolve().parents[1] / "locale"
DOMAIN = "sentences"

LONGEST = 4_000
"""Characters; a longer text is no sentence and stays as it is."""
_DEEPEST = 5
_MOST_CANDIDATES = 60
_MOST_PIECES = 14
_MOST_WORDS = 24
_REMEMBERED = 20_000

Names = frozenset[str]

# Weak joints last. The second is what stands there between two translated pieces.
_JOINTS = (
    ("\n", "\n"),
    (". ", "。"),
    ("; ", "；"),
    (": ", "："),
    (", ", "，"),
    (" · ", " · "),
    (" → ", " → "),
)
_ASIDE = re.compile(r"(.*\S) \(([^()]+)\)(\.?)", re.DOTALL)
# A word of prose; what touches one of these marks is a name, a flag, a path or code.
_PROSE = re.compile(r"(?<![\w./=`'\"@\-])[A-Za-z][a-z]{2,}(?![\w/=`@]|[.\-]\w)")
_NUMBERED = re.compile(r"([−–+≤≥<>~]?\s?[\d][\d.,]*[\s\u00a0])(\D.*)", re.DOTALL)


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
        said, _ = self._resolve(inner, 0, names)
        head = text[: len(text) - len(text.lstrip())]
        tail = text[len(text.rstrip()) :]
        return f"{head}{said}{tail}"

    # --- the catalogue -------------------------------------------------------------------------

    def _sorted(self, translations: Mapping[str, str]) -> list[Template]:
        """Templates, the most specific first; texts without a placeholder go to `_exact`."""
        templates = []
        for english, translation in translations.items():
            template = Template.of(english, translation)
            if len(template.literals) == 1:
                said = template.fill(())
                self._exact[template.literals[0]] = said
                self._exact.setdefault(_plain(template.literals[0]), _without_end(english, said))
            else:
                literals = template.literals
                bare = (_lower(literals[0]), *literals[1:-1], literals[-1].removesuffix("."))
                pieces = Template.of(english, _without_end(english, translation)).pieces
                templates.append(Template(bare, pieces))
        return sorted(templates, key=lambda one: -one.length)

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

    def _resolved(self, text: str, depth: int, names: Names) -> tuple[str, float]:
        """(translation, how much English prose is left in it; 0 where all is said)."""
        found = self._looked_up(text)
        if found is not None:
            return found, 0.0
        left = _prose(text)
        if not left or depth > _DEEPEST:
            return text, left
        said, least = self._by_template(text, depth, names)
        if least and (numbered := _NUMBERED.fullmatch(text)):
            word, rest = self._resolve(numbered[2], depth + 1, names)
            said, least = min((said, least), (f"{numbered[1]}{word}", rest), key=_least)
        if least and (aside := _ASIDE.fullmatch(text)):
            said, least = min((said, least), self._aside(aside, depth, names), key=_least)
        if least:
            said, least = min((said, least), self._by_head(text, depth, names), key=_least)
        if least:
            said, least = min((said, least), self._by_pieces(text, depth, names), key=_least)
        # Half a translation is harder to read than the original.
        return (said, least) if least <= 0.5 * left else (text, left)

    def _looked_up(self, text: str) -> str | None:
        found = self._exact.get(text)
        if found is not None:
            return found
        plain = self._exact.get(_plain(text))
        return None if plain is None else plain + ("。" if text.endswith(".") else "")

    def _by_template(self, text: str, depth: int, names: Names) -> tuple[str, float]:
        bare = _plain(text)
        best, least = text, _prose(text)
        tried = 0
        for template in self._candidates(bare):
            captures = template.match(bare)
            if captures is None:
                continue
            said = [self._captured(capture, depth, names) for capture in captures]
            left = sum(rest for _, rest in said)
            # With few words of its own a template says little about what it matched.
            left += 0.0 if not left or template.length > 12 else 1.0
            if left < least:
                end = "。" if text.endswith(".") else ""
                best, least = f"{template.fill([word for word, _ in said])}{end}", left
            tried += 1
            if not least or tried >= _MOST_CANDIDATES:
                break
        return best, least

    def _aside(self, found: re.Match[str], depth: int, names: Names) -> tuple[str, float]:
        said, left = self._resolve(found[1], depth + 1, names)
        inner, more = self._resolve(found[2], depth + 1, names)
        return f"{said}（{inner}）{'。' if found[3] else ''}", left + more

    def _captured(self, capture: str, depth: int, names: Names) -> tuple[str, float]:
        inner = capture.strip()
        if not inner or inner in names:
            return capture, 0.0
        said, left = self._resolve(inner, depth + 1, names)
        if said == inner:
            # One word that nothing explains is most often a name.
            return capture, left if left > 1 else 0.2 * left
        return capture.replace(inner, said, 1), left

    def _by_head(self, text: str, depth: int, names: Names) -> tuple[str, float]:
        """A known phrase at the start, then the rest: "running requests 8"."""
        at = len(text)
        for _ in range(_MOST_WORDS):
            at = text.rfind(" ", 0, at)
            if at <= 0:
                break
            head = self._looked_up(text[:at])
            if head is not None and not text[:at].endswith((".", ",", ";", ":")):
                rest, left = self._resolve(text[at + 1 :], depth + 1, names)
                return f"{head} {rest}", left
        return text, _prose(text)

    def _by_pieces(self, text: str, depth: int, names: Names) -> tuple[str, float]:
        """The longest runs of pieces that are sentences, at the strongest joint there is."""
        for joint, mark in _JOINTS:
            pieces = text.split(joint)
            if 1 < len(pieces) <= _MOST_PIECES:
                return self._joined(pieces, joint, mark, depth, names)
        return text, _prose(text)

    def _joined(
        self, pieces: list[str], joint: str, mark: str, depth: int, names: Names
    ) -> tuple[str, float]:
        said, total, start = "", 0.0, 0
        while start < len(pieces):
            run, left, end = "", 0.0, start
            for end in range(len(pieces), start, -1):
                whole = joint.join(pieces[start:end])
                if end - start > 1:
                    run, left = self._whole(whole, depth, names)
                    if not left:
                        break
                else:
                    run, left = self._resolve(whole, depth + 1, names)
            if start:
                said += mark if not left and not total else joint
            said, total, start = said + run, total + left, end
        return said, total

    def _whole(self, text: str, depth: int, names: Names) -> tuple[str, float]:
        found = self._looked_up(text)
        return (found, 0.0) if found is not None else self._by_template(text, depth + 1, names)


def _least(result: tuple[str, float]) -> float:
    return result[1]


def _prose(text: str) -> float:
    return float(len(_PROSE.findall(text)))


def _lower(text: str) -> str:
    """Without the capital of a sentence's start; names such as KV keep theirs."""
    return text[0].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def _plain(text: str) -> str:
    return _lower(text.removesuffix("."))


def _without_end(english: str, translation: str) -> str:
    return translation.removesuffix("。") if english.endswith(".") else translation


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
