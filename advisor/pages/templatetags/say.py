"""`{{ finding.title|say }}`: a sentence that the product built, in the reader's language.

Built in, so no template loads it. Never on what users typed: a study may be called "Running".
"""

from __future__ import annotations

from django import template
from django.conf import settings
from django.utils.translation import get_language

from advisor.pages.language import said

register = template.Library()
register.filter("say", said)


@register.simple_tag
def other_languages() -> list[tuple[str, str]]:
    """(code, its own name) of every language but the one that the page is in."""
    return [pair for pair in settings.LANGUAGES if pair[0] != get_language()]
