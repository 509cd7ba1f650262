"""One trial: what was asked, how it ended, what was measured, on what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from advisor.charts import ChartInput, chart
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.fleet.selectors import telemetry_window
from advisor.pages.access import reading
from advisor.pages.present import telemetry
from advisor.pages.present import trials as present
from advisor.pages.present.profiles import profile_page
from advisor.reports import words
from advisor.studies.evidence import build_evidence
from advisor.studies.models import Trial
from advisor.studies.selectors import trial_get

TABS = {
    "timing": _("Timing"),
    "settings": _("Settings"),
    "telemetry": _("Telemetry"),
    "environment": _("Environment"),
    "log": _("Log"),
}
_CHARTS = {
    "baseline": ("ttft-spread", "itl-spread", "prefill-grid", "decode-grid"),
    "kv_cache": ("kv-speed", "kv-memory", "kv-forms", "kv-blocks"),
    "profile": (),
    "calibrate": ("ceilings",),
    "kernels": ("recoverable", "step-forms", "gemm-share"),
    "attention": ("attention-time", "attention-memory"),
    "quantisation": ("format-tradeoff",),
    "batching": ("batch-scaling",),
    "verify": ("ttft-spread", "itl-spread"),
}


@reading
def trial_detail(request: HttpRequest, trial_id: UUID) -> HttpResponse:
    trial = trial_get(org=request.org, trial_id=trial_id)
    evidence = build_evidence(trial.study)
    seen = next(t for t in evidence.trials if t.trial_id == str(trial.pk))
    tab = request.GET.get("tab", "timing")
    tab = tab if tab in TABS else "timing"
    context = {
        "trial": trial,
        "study": trial.study,
        "trial_name": _("Trial {ordinal}").format(ordinal=trial.ordinal),
        "seen": seen,
        "tabs": TABS,
        "tab": tab,
        "status": words.TRIALS[trial.state],
        "headline": present.trial_headline(seen, evidence),
        "facts": present.facts(seen),
    }
    section = _SECTIONS.get(tab)
    if section is not None:
        context |= section(trial, seen, evidence)
    return render(request, "pages/trial.html", context)


def _timing(trial: Trial, seen: TrialEvidence, evidence: StudyEvidence) -> dict[str, Any]:
    if seen.result is None:
        return {}
    data = ChartInput.of_trial(evidence, seen.trial_id)
    drawn = [chart(chart_id, data) for chart_id in _CHARTS[seen.spec.experiment]]
    return {
        "validity": words.VALIDITIES[seen.result.validity.verdict],
        "metrics": present.metric_lines(seen, evidence),
        "samples": present.sample_line(seen),
        "comparisons": present.comparison_lines(seen),
        "quantities": present.quantity_lines(seen),
        "phases": present.phase_lines(seen),
        "profile": profile_page(seen, list(trial.traces.defer("report_json"))),
        "charts": [(c,) for c in drawn if not c.is_empty],
    }


def _settings(trial: Trial, seen: TrialEvidence, evidence: StudyEvidence) -> dict[str, Any]:
    return {
        "settings": present.setting_lines(seen, evidence),
        "spec_json": seen.spec.model_dump_json(indent=2),
    }


def _telemetry(trial: Trial, seen: TrialEvidence, evidence: StudyEvidence) -> dict[str, Any]:
    if trial.agent is None or trial.started_at is None:
        return {}
    until = trial.finished_at or timezone.now()
    samples = telemetry_window(trial.agent, trial.started_at, until)
    return {
        "readings": telemetry.readings(samples),
        "throttling": telemetry.throttling(samples),
        "sample_count": len(samples),
    }


def _environment(trial: Trial, seen: TrialEvidence, evidence: StudyEvidence) -> dict[str, Any]:
    return {"environment": present.environment_table(seen, evidence)}


_SECTIONS: dict[str, Callable[[Trial, TrialEvidence, StudyEvidence], dict[str, Any]]] = {
    "timing": _timing,
    "settings": _settings,
    "telemetry": _telemetry,
    "environment": _environment,
}
