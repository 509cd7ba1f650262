"""The reader's language: which one it is, and what the product built said in it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.middleware.locale import LocaleMiddleware
from django.utils import translation
from django.utils.cache import patch_vary_headers
from django.utils.safestring import SafeString

from advisor.i18n import say

# Programs read these: their texts do not follow a browser's settings.
_FOR_PROGRAMS = ("/api/", "/healthz", "/readyz", "/metrics")


class LanguageMiddleware(LocaleMiddleware):
    """The language of the cookie, else of the browser; English for programs."""

    def process_request(self, request: HttpRequest) -> None:
        if request.path_info.startswith(_FOR_PROGRAMS):
            translation.activate(settings.LANGUAGE_CODE)
            request.LANGUAGE_CODE = settings.LANGUAGE_CODE
            return
        super().process_request(request)

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if request.path_info.startswith(_FOR_PROGRAMS):
            return response
        # The choice is a cookie, so a shared cache has to tell readers apart by it.
        patch_vary_headers(response, ("Cookie",))
        return super().process_response(request, response)


def said(value: Any, name: str = "") -> Any:
    """A text, or each text of a list, in the active language. Anything else as it is.

    name: what a user named; it stays as it is where the text holds it.

    What is marked as safe is markup, and is left alone; the result is never marked.
    """
    if isinstance(value, list | tuple):
        return [said(one, name) for one in value]
    if not isinstance(value, str) or isinstance(value, SafeString) or value == name:
        return value
    text = say(
        str(value),
        translation.get_language() or settings.LANGUAGE_CODE,
        frozenset({name}) if name else frozenset(),
    )
    # Words of a module's tables are marked for Django, but were read before there was a reader.
    return translation.gettext(text) if text and text == value else text


class SaidSelect(forms.Select):
    """A choice whose words are the product's own, shown in the reader's language."""

    def create_option(self, name: str, value: Any, label: Any, *args: Any, **kwargs: Any) -> Any:
        return super().create_option(name, value, said(str(label)), *args, **kwargs)

    def optgroups(self, *args: Any, **kwargs: Any) -> Any:
        return [(said(name), *rest) for name, *rest in super().optgroups(*args, **kwargs)]
