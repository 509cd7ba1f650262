"""`{% status "good" "Met" %}` and `{% chip "run" "Running" %}`: shape, colour and word together.

The word is the product's own and said in the reader's language.
"""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from advisor.pages.language import said

register = template.Library()

KINDS = frozenset({"good", "warn", "bad", "run", "wait", "info", "na"})


def _shape(kind: str) -> SafeString:
    if kind not in KINDS:
        raise ValueError(f"unknown status {kind!r}: one of {', '.join(sorted(KINDS))}")
    return format_html('<span class="shape shape--{}" aria-hidden="true"></span>', kind)


@register.simple_tag
def status(kind: str, word: Any) -> SafeString:
    return format_html('<span class="status {}">{}{}</span>', kind, _shape(kind), said(word))


@register.simple_tag
def chip(kind: str, word: Any) -> SafeString:
    return format_html('<span class="chip {}">{}{}</span>', kind, _shape(kind), said(word))


@register.simple_tag
def shape(kind: str) -> SafeString:
    return _shape(kind)
