"""`manage.py messages`: collects every text for people, merges it into the catalogues, compiles.

`--check` writes nothing and fails where a text has no translation or a file is out of date.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils.translation.template import templatize

from advisor.i18n.extract import sentences_of

_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_SHOWN = 10


class Command(BaseCommand):
    help = "Collect the texts of pages and sentences into the catalogues and compile them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="change nothing, only say")

    def handle(self, *, check: bool = False, **options: Any) -> None:
        # Babel is a tool of developers: the other commands work without it.
        from advisor.i18n import catalogues

        root = Path(settings.BASE_DIR)
        wrong = []
        for domain, messages in (("django", _of_django(root)), ("sentences", _sentences(root))):
            for locale in catalogues.locales():
                merged = catalogues.merged(locale, domain, messages)
                path = catalogues.path_of(locale, domain)
                name = f"{locale}/{domain}"
                for text in merged.missing[:_SHOWN]:
                    self.stderr.write(f"{name}: not translated: {text}")
                if merged.missing:
                    wrong.append(f"{name}: {len(merged.missing)} texts without a translation")
                for file, content in ((path, merged.po), (path.with_suffix(".mo"), merged.mo)):
                    if file.is_file() and file.read_bytes() == content:
                        continue
                    if check:
                        wrong.append(f"{file.relative_to(root)} is out of date")
                    else:
                        file.parent.mkdir(parents=True, exist_ok=True)
                        file.write_bytes(content)
                self.stdout.write(
                    f"{name}: {len(messages)} texts, {len(merged.missing)} not translated,"
                    f" {len(merged.dropped)} dropped"
                )
        if check and wrong:
            raise CommandError("; ".join(wrong) + ". Run `manage.py messages`, then fill the .po.")


def _sentences(root: Path) -> list[Any]:
    """Texts that are built in Python; a comment says what each placeholder holds."""
    from advisor.i18n.catalogues import Message

    return [
        Message(
            one.text,
            comments=tuple(f"{{{n}}} = {source}" for n, source in enumerate(one.holds)),
            files=(one.file,),
        )
        for one in sentences_of(root)
    ]


def _of_django(root: Path) -> list[Any]:
    """Texts marked for Django: `{% translate %}`, `gettext` and their like."""
    from advisor.i18n.catalogues import Message

    found: dict[Any, Message] = {}
    for file, message_id, context, comments in _marked(root):
        known = found.get((message_id, context))
        files = (*known.files, file) if known and file not in known.files else (file,)
        text = message_id if isinstance(message_id, str) else message_id[1]
        found[message_id, context] = Message(
            message_id,
            context,
            tuple(comments),
            known.files if known and file in known.files else files,
            is_format=re.search(r"%\(\w+\)[sd]", text) is not None,
        )
    return list(found.values())


def _marked(root: Path) -> Iterator[tuple[str, Any, str | None, list[str]]]:
    from babel.messages.extract import DEFAULT_KEYWORDS, extract

    keywords = DEFAULT_KEYWORDS | {"gettext_lazy": None, "ngettext_lazy": (1, 2)}
    for path in [*sorted((root / "advisor").rglob("*.py")), *_templates(root)]:
        source = path.read_text(encoding="utf-8")
        if path.suffix != ".py":
            # Django turns a template into calls of gettext; what is around them is no Python.
            source = _INDENT.sub("", templatize(source, origin=str(path)))
        for _line, message_id, comments, context in extract(
            "python", BytesIO(source.encode()), keywords, comment_tags=("Translators:",)
        ):
            yield path.relative_to(root).as_posix(), message_id, context, comments


def _templates(root: Path) -> list[Path]:
    return sorted((root / "templates").rglob("*.html"))
