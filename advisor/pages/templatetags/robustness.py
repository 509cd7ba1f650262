"""Words of a robustness test in templates."""

from __future__ import annotations

from django import template

from advisor.reports.robustness import WORDS
from advisor.reports.words import Word
from gpuagent.wire.robustness import RobustnessVerdict

register = template.Library()


@register.simple_tag
def robustness_word(verdict: RobustnessVerdict) -> Word:
    """Kind and word of one line."""
    return WORDS[verdict]
