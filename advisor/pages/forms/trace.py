"""One file field: a trace to upload."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _


class TraceForm(forms.Form):
    file = forms.FileField(
        label=_("Trace"),
        max_length=500,
        error_messages={
            "required": _("Choose a trace file."),
            "empty": _("The file is empty."),
        },
    )
