"""Small forms of the organisation page."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _

from advisor.accounts.models import Role, TokenScope
from advisor.accounts.services import DEFAULT_TOKEN_DAYS, MAX_TOKEN_DAYS

_INPUT = {"class": "input"}


class TokenForm(forms.Form):
    name = forms.CharField(
        label=_("Name"),
        max_length=80,
        widget=forms.TextInput({**_INPUT, "autocomplete": "off"}),
        error_messages={"required": _("Enter a name, for example what uses the token.")},
    )
    scope = forms.ChoiceField(
        label=_("Scope"), choices=TokenScope.choices, widget=forms.Select(_INPUT)
    )
    days = forms.IntegerField(
        label=_("Valid for"),
        min_value=1,
        max_value=MAX_TOKEN_DAYS,
        initial=DEFAULT_TOKEN_DAYS,
        widget=forms.NumberInput({"class": "input num"}),
        error_messages={"invalid": _("Enter a whole number of days.")},
    )


class MemberForm(forms.Form):
    email = forms.EmailField(
        label=_("E-mail address"), widget=forms.EmailInput({**_INPUT, "autocomplete": "off"})
    )
    role = forms.ChoiceField(
        label=_("Role"),
        choices=Role.choices,
        initial=Role.MEMBER,
        widget=forms.Select(_INPUT),
    )
