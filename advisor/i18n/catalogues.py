"""Reads, merges and compiles the .po files. For developers: only this needs Babel.

The .mo files are committed, so that a machine needs no tool to show a translated page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from advisor.i18n.sentences import LOCALE_DIR

# Dates in the header would change every file with every run.
_DATE = datetime(2026, 1, 1, tzinfo=UTC)
_WIDTH = 100

MessageId = str | tuple[str, str]
"""The English text; with a plural form the pair."""


@dataclass(frozen=True, slots=True)
class Message:
    """One text of a catalogue. comments: for translators; files: where it is shown from."""

    id: MessageId
    context: str | None = None
    comments: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    is_format: bool = False


@dataclass(frozen=True, slots=True)
class Merged:
    """A catalogue after merging, as its two files. missing: texts without a translation."""

    po: bytes
    mo: bytes
    missing: tuple[str, ...]
    dropped: tuple[str, ...]


def path_of(locale: str, domain: str) -> Path:
    """Of the .po file; the .mo file lies beside it."""
    return LOCALE_DIR / locale / "LC_MESSAGES" / f"{domain}.po"


def locales() -> list[str]:
    """The languages that there are folders for."""
    return sorted(path.name for path in LOCALE_DIR.iterdir() if path.is_dir())


def merged(locale: str, domain: str, messages: Iterable[Message]) -> Merged:
    """`messages` with the translations that the .po file has; what is gone from it is dropped."""
    path = path_of(locale, domain)
    old = _read(path, locale) if path.is_file() else Catalog(locale=locale)
    new = Catalog(
        locale=locale,
        project="LLM Tuning Advisor",
        version=domain,
        header_comment="# Made by `manage.py messages`: edit nothing but msgstr.",
        creation_date=_DATE,
        revision_date=_DATE,
        msgid_bugs_address="see README.md",
        last_translator="see the history of this file",
        language_team=locale,
        fuzzy=False,
    )
    for message in messages:
        known = old.get(message.id, message.context)
        new.add(
            message.id,
            known.string if known is not None else None,
            locations=[(file, 0) for file in message.files],
            flags=["python-format"] if message.is_format else [],
            auto_comments=message.comments,
            context=message.context,
        )
    missing = tuple(_name(m.id) for m in new if m.id and not _is_said(m.string))
    dropped = tuple(_name(m.id) for m in old if m.id and new.get(_key(m.id), m.context) is None)
    po, mo = BytesIO(), BytesIO()
    write_po(po, new, width=_WIDTH, include_lineno=False, ignore_obsolete=True)
    write_mo(mo, new)
    return Merged(po.getvalue(), mo.getvalue(), missing, dropped)


def _read(path: Path, locale: str) -> Catalog:
    with path.open("rb") as file:
        return read_po(file, locale=locale, abort_invalid=True)


def _is_said(string: object) -> bool:
    return all(string) if isinstance(string, list | tuple) else bool(string)


def _key(message_id: str | Sequence[str]) -> MessageId:
    return message_id if isinstance(message_id, str) else (message_id[0], message_id[1])


def _name(message_id: str | Sequence[str]) -> str:
    return message_id if isinstance(message_id, str) else message_id[0]
