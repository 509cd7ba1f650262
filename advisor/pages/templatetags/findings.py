"""Words of a finding, figures of a chart."""

from __future__ import annotations

import json

from django import template
from django.utils.safestring import SafeString, mark_safe

from advisor.charts import Chart
from advisor.charts.svg import HEIGHT, TALL, figure_svg
from advisor.charts.words import said_figure
from advisor.pages.language import said
from advisor.pages.present.studies import effect_text
from advisor.reports import words
from advisor.rules.rule import Finding

register = template.Library()

# What could end a script element or start a comment in it, as `json_script` has it.
_ESCAPES = {ord(">"): "\\u003E", ord("<"): "\\u003C", ord("&"): "\\u0026"}


@register.simple_tag
def effect(finding: Finding) -> tuple[str, str]:
    return effect_text(finding.effect)


@register.simple_tag
def finding_word(finding: Finding) -> words.Word:
    return words.FINDINGS[finding.verdict]


@register.filter
def get(mapping: dict[str, int], key: str) -> int | str:
    """A value of a mapping by a variable key; empty where it is missing."""
    return mapping.get(key, "")


@register.filter
def figure_json(chart: Chart) -> SafeString:
    """The figure as JSON that is safe inside a script element."""
    figure = None if chart.figure is None else said_figure(chart.figure, said)
    return escape_json(json.dumps(figure, separators=(",", ":"), allow_nan=False))


def escape_json(text: str) -> SafeString:
    """JSON whose characters cannot end the script element around it."""
    return mark_safe(text.translate(_ESCAPES))  # noqa: S308 - escaped here, as json_script does


@register.filter
def chart_svg(chart: Chart) -> SafeString:
    """The figure as SVG, for the time before and instead of the script."""
    if chart.figure is None:
        return SafeString("")
    figure = said_figure(chart.figure, said)
    height = TALL if chart.tall else HEIGHT
    return mark_safe(figure_svg(figure, said(chart.label), height))  # noqa: S308 - it escapes all text


@register.filter
def cells(chart: Chart, row: tuple[str, ...]) -> list[tuple[str, bool]]:
    """The row's cells after the first, each with whether its column is numeric."""
    numeric = (column.numeric for column in chart.columns[1:])
    return list(zip(row[1:], numeric, strict=True))
