"""One trial: what was asked, how it ended, what was measured, on what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from advisor.charts import Chart, ChartInput, chart
from advisor.charts.telemetry import charts as telemetry_charts
from advisor.errors import Conflict
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.fleet.selectors import telemetry_window
from advisor.pages.access import actor_of, reading, writing
from advisor.pages.present import imported, served, telemetry
from advisor.pages.present import trials as present
from advisor.pages.present.profiles import profile_page
from advisor.reported import how_to_prove
from advisor.reports import words
from advisor.reports.robustness import robustness_of
from advisor.studies.evidence import build_evidence
from advisor.studies.models import Trial
from advisor.studies.selectors import trial_get
from advisor.studies.services import trial_cancel

TABS = {
    "timing": _("Timing"),
    "rate": _("Highest rate"),
    "server": _("Server"),
    "memory": _("Memory"),
    "kernels": _("Kernels"),
    "settings": _("Settings"),
    "telemetry": _("Telemetry"),
    "environment": _("Environment"),
    "log": _("Log"),
}
_CHARTS = {
    "baseline": ("ttft-spread", "itl-spread", "prefill-grid", "decode-grid"),
    "kv_cache": ("kv-speed", "kv-forms"),
    "profile": (),
    "calibrate": ("ceilings",),
    "kernels": ("step-forms",),
    "attention": ("attention-time",),
    "quantisation": ("format-tradeoff",),
    "batching": ("batch-scaling",),
    "tensor_parallel": ("tensor-parallel",),
    "serve": ("ttft-spread", "itl-spread"),
    "verify": ("ttft-spread", "itl-spread"),
    "imported": ("ttft-spread", "itl-spread"),
}

_MEMORY_CHARTS = {"kv_cache": ("kv-memory", "kv-blocks"), "attention": ("attention-memory",)}
_KERNEL_CHARTS = {
    "calibrate": ("ceilings",),
    "kernels": ("roofline", "gemm-share", "recoverable"),
}


@reading
def trial_detail(request: HttpRequest, trial_id: UUID) -> HttpResponse:
    trial = trial_get(org=request.org, trial_id=trial_id)
    evidence = build_evidence(trial.study)
    seen = next(t for t in evidence.trials if t.trial_id == str(trial.pk))
    if trial.is_terminal and request.headers.get("HX-Request"):
        # The moving part asked: everything on the page follows from the result that is there now.
        return HttpResponse(status=200, headers={"HX-Refresh": "true"})
    first = "kernels" if seen.spec.experiment in ("profile", "kernels") else "timing"
    tab = request.GET.get("tab", first)
    tabs, read = _tabs(seen), imported.imported_of(seen)
    tab = tab if tab in tabs else first
    context = {
        "trial": trial,
        "study": trial.study,
        "trial_name": _("Trial {ordinal}").format(ordinal=trial.ordinal),
        "seen": seen,
        "tabs": tabs,
        "tab": tab,
        "status": words.TRIALS[trial.state],
        "headline": present.trial_headline(seen, evidence),
        "facts": imported.facts(seen, read) if read else present.facts(seen),
        "imported": read,
        "validity": words.VALIDITIES[seen.result.validity.verdict] if seen.result else None,
        "samples": "" if read and not read.requests else present.sample_line(seen),
        "percent": round((trial.done_frac or 0.0) * 100, 1),
    }
    section = _SECTIONS.get(tab)
    if section is not None:
        context |= section(trial, seen, evidence)
    return render(request, "pages/trial.html", context)


def _tabs(seen: TrialEvidence) -> dict[str, Any]:
    """Sections of a server only where one was measured, of a device only where one was watched."""
    if imported.imported_of(seen):
        return {name: TABS[name] for name in imported.TABS}
    absent = set()
    if not served.has_server(seen):
        absent.add("server")
    if not served.has_boundary(seen):
        absent.add("rate")
    return {name: label for name, label in TABS.items() if name not in absent}


@writing
def trial_cancel_view(request: HttpRequest, trial_id: UUID) -> HttpResponse:
    trial = trial_get(org=request.org, trial_id=trial_id)
    try:
        trial_cancel(trial=trial, actor=actor_of(request))
    except Conflict as error:
        messages.warning(request, error.message)
    else:
        text = (
            gettext("Cancelled. The study goes on without this trial.")
            if trial.is_terminal
            else gettext("The trial ends when its agent hears of it. The study goes on without it.")
        )
        messages.info(request, text)
    return redirect("trial", trial_id=trial.pk)


def _timing(trial: Trial, seen: TrialEvidence, evidence: StudyEvidence) -> dict[str, Any]:
    if seen.result is None:
        return {}
    read = imported.imported_of(seen)
    if read is not None:
        return {
            "metrics": present.metric_lines(seen, evidence),
            "sums": imported.sum_lines(read),
            "quantities": imported.quantity_lines(read),
            "only_sums": how_to_prove(evidence),
            "charts": _drawn(_CHARTS, seen, evidence),
        }
    return {
        "metrics": present.metric_lines(seen, evidence),
        "comparisons": present.comparison_lines(seen),
        "robustness": robustness_of(seen),
        "quantities": present.quantity_lines(seen),
        "phases": present.phase_lines(seen),
        "charts": _drawn(_CHARTS, seen, evidence),
    }


def _rate(trial: Trial, seen: TrialEvidence, evidence: StudyEvidence) -> dict[str, Any]:
    page = served.boundary_page(seen)
    return {"boundary": page, "charts": page.charts if page else ()}


def _server(trial: Trial, seen: TrialEvidence, evidence: StudyEvidence) -> dict[str, Any]:
    page = served.server_page(seen, evidence)
    return {"server": page, "charts": page.charts if page else ()}


def _drawn(
    by_experiment: Mapping[str, Sequence[str]], seen: TrialEvidence, evidence: StudyEvidence
) -> list[tuple[Chart, ...]]:
    """The trial's own charts, each in a box; those without evidence are left out."""
    data = ChartInput.of_trial(evidence, seen.trial_id)
    drawn = (chart(chart_id, data) for chart_id in by_experiment.get(seen.spec.experiment, ()))
    return [(one,) for one in drawn if not one.is_empty]


def _memory(trial: Trial, seen: TrialEvidence, evidence: StudyEvidence) -> dict[str, Any]:
    if seen.result is None:
        return {}
    return {
        "quantities": present.memory_lines(seen),
        "charts": _drawn(_MEMORY_CHARTS, seen, evidence),
    }


def _kernels(trial: Trial, seen: TrialEvidence, evidence: StudyEvidence) -> dict[str, Any]:
    if seen.result is None:
        return {}
    return {
        "profile": profile_page(seen, list(trial.traces.defer("report_json"))),
        "charts": _drawn(_KERNEL_CHARTS, seen, evidence),
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
        "charts": [group] if (group := telemetry_charts(samples)) else [],
    }


def _environment(trial: Trial, seen: TrialEvidence, evidence: StudyEvidence) -> dict[str, Any]:
    return {"environment": present.environment_table(seen, evidence)}


_SECTIONS: dict[str, Callable[[Trial, TrialEvidence, StudyEvidence], dict[str, Any]]] = {
    "timing": _timing,
    "rate": _rate,
    "server": _server,
    "memory": _memory,
    "kernels": _kernels,
    "settings": _settings,
    "telemetry": _telemetry,
    "environment": _environment,
}
