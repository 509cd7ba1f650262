"""A result of another load tool and the targets to judge it by."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _

from advisor.imports import KEPT_BYTES, too_large
from advisor.presets import PRESETS
from gpuagent.wire.sla import SlaTarget, parse_target

MOST_TARGETS = 12


class ImportForm(forms.Form):
    file = forms.FileField(
        label=_("Result file"),
        max_length=500,
        help_text=_(
            "vllm bench serve (best with --save-detailed), guidellm or aiperf JSON, Locust CSV. "
            "Up to 20 MB. Nothing of it is kept unless you say so."
        ),
        error_messages={"required": _("Choose a file."), "empty": _("The file is empty.")},
    )
    targets = forms.CharField(
        label=_("Targets"),
        required=False,
        max_length=1000,
        strip=True,
        initial="ttft_s:p95<=0.5",
        help_text=_("One a line, in SI units: ttft_s:p95<=0.5, output_tok_s:mean>=100."),
        widget=forms.Textarea(attrs={"rows": 3, "class": "input", "spellcheck": "false"}),
    )

    name = forms.CharField(
        label=_("Name of the study"),
        required=False,
        max_length=100,
        help_text=_("Only to keep it. Empty: the tool and its label."),
        widget=forms.TextInput(attrs={"class": "input"}),
    )
    preset = forms.ChoiceField(
        label=_("Scenario"),
        required=False,
        choices=[(name, name) for name in PRESETS],
        initial="api",
        widget=forms.Select(attrs={"class": "input"}),
    )
    hardware = forms.CharField(
        label=_("Hardware"),
        required=False,
        max_length=100,
        help_text=_("Results are compared only on hardware of the same name."),
        widget=forms.TextInput(attrs={"class": "input"}),
    )

    def clean_file(self) -> object:
        upload = self.cleaned_data["file"]
        if upload.size > KEPT_BYTES:
            raise forms.ValidationError(too_large(upload.size))
        return upload

    def clean_targets(self) -> tuple[SlaTarget, ...]:
        lines = [line for line in self.cleaned_data["targets"].splitlines() if line.strip()]
        if len(lines) > MOST_TARGETS:
            raise forms.ValidationError(_("Give at most 12 targets."))
        try:
            return tuple(parse_target(line) for line in lines)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None
