"""Texts in the reader's language. Pure; how texts are found and shown: docs/i18n.md."""

from __future__ import annotations

from advisor.i18n.sentences import ENGLISH, language_spoken, say, speaking, spoken

__all__ = ["ENGLISH", "language_spoken", "say", "speaking", "spoken"]
