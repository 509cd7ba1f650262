"""The catalogue of rules, and one rule with the studies in which it fired."""

from __future__ import annotations

from itertools import groupby

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from advisor.knobs import knob_name
from advisor.pages.access import reading
from advisor.pages.present.studies import effect_text
from advisor.reports import words
from advisor.rules import RULES
from advisor.rules.rule import Finding, Verdict
from advisor.studies.models import FindingRow

MOST_ROWS = 30


@reading
def rule_list(request: HttpRequest) -> HttpResponse:
    rules = sorted(RULES, key=lambda rule: rule.group)
    groups = [(name, list(found)) for name, found in groupby(rules, key=lambda rule: rule.group)]
    context = {"groups": groups, "total": len(rules)}
    return render(request, "pages/rules.html", context)


@reading
def rule_detail(request: HttpRequest, rule_id: str) -> HttpResponse:
    rule = next((rule for rule in RULES if rule.id == rule_id), None)
    if rule is None:
        raise Http404
    rows = (
        FindingRow.objects.filter(study__org=request.org, rule_id=rule_id)
        .select_related("study")
        .order_by("-study__created_at", "rank")[:MOST_ROWS]
    )
    context = {
        "rule": rule,
        "knobs": [knob_name(knob) for knob in rule.knobs],
        "fired": [_fired(row) for row in rows],
    }
    return render(request, "pages/rule.html", context)


def _fired(row: FindingRow) -> dict[str, object]:
    finding = Finding.model_validate(row.payload)
    change, note = effect_text(finding.effect)
    return {
        "study": row.study,
        "status": words.FINDINGS[Verdict(row.verdict)],
        "title": finding.title,
        "effect": f"{change} {note}".strip(),
        "change": finding.change.text if finding.change else "",
    }
