"""Small forms of the organisation page."""

from __future__ import annotations

from django import forms
from django.utils.functional import Promise
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from advisor.accounts.models import Role, TokenScope
from advisor.accounts.services import DEFAULT_TOKEN_DAYS, MAX_TOKEN_DAYS
from advisor.catalog import GpuSpec, list_gpus, price_basis
from advisor.pages.language import SaidSelect

_INPUT = {"class": "input"}


def _list_price(gpu: GpuSpec) -> str | Promise:
    price = price_basis(gpu)
    return f"${price.usd_per_gpu_hour:.2f}/h" if price is not None else _("no list price")


class NameForm(forms.Form):
    """A person's own name."""

    name = forms.CharField(
        label=_("Name"),
        max_length=120,
        required=False,
        help_text=_("Others in your organisations see it. Empty shows the e-mail address."),
        widget=forms.TextInput({**_INPUT, "autocomplete": "name"}),
    )


class TokenForm(forms.Form):
    name = forms.CharField(
        label=_("Name"),
        max_length=80,
        widget=forms.TextInput({**_INPUT, "autocomplete": "off"}),
        error_messages={"required": _("Enter a name, for example what uses the token.")},
    )
    scope = forms.ChoiceField(
        label=_("Scope"), choices=TokenScope.choices, widget=SaidSelect(_INPUT)
    )
    days = forms.IntegerField(
        label=_("Valid for"),
        min_value=1,
        max_value=MAX_TOKEN_DAYS,
        initial=DEFAULT_TOKEN_DAYS,
        widget=forms.NumberInput({"class": "input num"}),
        error_messages={"invalid": _("Enter a whole number of days.")},
    )


class PriceForm(forms.Form):
    """The organisation's own price of one GPU; empty goes back to the list price."""

    gpu = forms.CharField(
        label=_("GPU"),
        initial="H100 SXM",
        widget=forms.Select(
            _INPUT,
            choices=[
                (gpu.name, format_lazy("{} ({})", gpu.name, _list_price(gpu)))
                for gpu in list_gpus()
            ],
        ),
    )
    usd_per_gpu_hour = forms.FloatField(
        label=_("Own price"),
        required=False,
        widget=forms.TextInput({"class": "input num", "inputmode": "decimal"}),
        help_text=_("Empty: back to the list price."),
        error_messages={"invalid": _("Enter a price, for example 2.95.")},
    )
    reason = forms.CharField(
        label=_("Reason"),
        required=False,
        max_length=120,
        widget=forms.TextInput({**_INPUT, "autocomplete": "off"}),
    )


class MemberForm(forms.Form):
    email = forms.EmailField(
        label=_("E-mail address"), widget=forms.EmailInput({**_INPUT, "autocomplete": "off"})
    )
    role = forms.ChoiceField(
        label=_("Role"),
        choices=Role.choices,
        initial=Role.MEMBER,
        widget=SaidSelect(_INPUT),
    )
