"""Bars of a trace and its timeline. Widths are SVG attributes: inline style is not allowed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from advisor.charts.words import said_figure
from advisor.pages.language import said
from advisor.pages.present.traces import Slice
from advisor.pages.templatetags.findings import escape_json

register = template.Library()


@register.simple_tag
def stacked_bar(slices: Sequence[Slice]) -> SafeString:
    """All slices in one bar, with their shares as its accessible name."""
    words = ", ".join(f"{said(piece.label)} {piece.percent}" for piece in slices)
    rects = format_html_join(
        "",
        '<rect class="{}" x="{}" width="{}" height="28"/>',
        ((piece.key, piece.left, piece.width) for piece in slices),
    )
    return format_html(
        '<svg class="bar" viewBox="0 0 100 28" preserveAspectRatio="none" role="img"'
        ' aria-label="{}">{}</svg>',
        words,
        rects,
    )


@register.simple_tag
def share_bar(piece: Slice) -> SafeString:
    """One slice against the largest."""
    return format_html(
        '<svg class="share {}" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="8" rx="1"/>'
        '<rect width="{}" height="8" rx="1"/></svg>',
        piece.key,
        piece.relative,
    )


@register.filter
def own_svg(text: str) -> SafeString:
    """Markup that `advisor.charts` made and escaped."""
    return mark_safe(text)  # noqa: S308 - trace_timeline.py escapes every text


@register.filter
def figure_data(figure: dict[str, Any]) -> SafeString:
    """A figure as JSON that is safe inside a script element."""
    return escape_json(
        json.dumps(said_figure(figure, said, points=False), separators=(",", ":"), allow_nan=False)
    )
