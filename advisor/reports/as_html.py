"""The report as one HTML file that opens offline: own styles inside, charts as SVG, no script."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from pathlib import Path

from advisor import units
from advisor.charts import figure
from advisor.charts.svg import figure_svg
from advisor.knobs import knob_name, knob_text
from advisor.reports import words
from advisor.reports.document import (
    ChartPart,
    Fact,
    Measured,
    ReportDocument,
    TargetRow,
    TrialRow,
    VerdictPart,
)
from advisor.reports.markup import Html, el, join, status, table
from advisor.rules.rule import Finding, Verdict
from advisor.targets import limit_text
from gpuagent.wire import SlaTarget

_CSS = Path(__file__).resolve().parents[2] / "static" / "css"
_LAYERS = ("tokens", "reset", "base", "layout", "components", "tables", "report")


def to_html(document: ReportDocument) -> bytes:
    page = join(
        Html('<!doctype html>\n<html lang="en">'),
        el(
            "head",
            Html('<meta charset="utf-8">'),
            Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html('<meta name="color-scheme" content="light dark">'),
            # Without an icon of its own a browser asks the server for one.
            Html('<link rel="icon" href="data:,">'),
            el("title", f"{document.name} · report of study {document.number}"),
            Html(f"<style>{report_css()}</style>"),
        ),
        el("body", el("main", _paper(document), class_="page", id="main")),
        Html("</html>\n"),
    )
    return page.encode()


@lru_cache(maxsize=1)
def report_css() -> str:
    """All style layers in one string; the same files as the dashboard's."""
    return "\n".join((_CSS / f"{name}.css").read_text(encoding="utf-8") for name in _LAYERS)


def style_source() -> str:
    """The `style-src` entry that allows exactly this report's style element."""
    digest = hashlib.sha256(report_css().encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


# --- sections ----------------------------------------------------------------------------------


def _paper(document: ReportDocument) -> Html:
    return el(
        "article",
        _head(document),
        _verdict(document),
        _facts(document.facts, "facts"),
        _targets(document),
        _what_to_change(document),
        _launch(document),
        _knobs(document),
        _charts(document),
        _findings(document),
        _trials(document),
        _lines("How it was measured", document.method),
        el("h2", "Environment") if document.environment else None,
        _pairs(document.environment) if document.environment else None,
        _lines("Limits of validity", document.limits),
        _foot(document),
        class_="paper",
    )


def _head(document: ReportDocument) -> Html:
    context = document.context
    day = f"{context.generated_at.day} {context.generated_at:%B %Y}"
    return el(
        "div",
        el("span", f"LLM Tuning Advisor · Study {document.number} · {document.name}"),
        el("span", f"{context.organisation} · {day}"),
        class_="paper__head",
    )


def _verdict(document: ReportDocument) -> Html:
    verdict = document.verdict
    kind, word = words.VERDICTS[verdict.status]
    if document.state in ("running", "waiting"):
        kind, word = "run", "Not finished"
    if verdict.verification == "verified":
        word = f"{word}, verified by A/B"
    return el(
        "header",
        el("div", status(kind, word, chip=True), class_="verdict__top"),
        el("h1", verdict.sentence),
        el("p", verdict.lede, class_="verdict__lede") if verdict.lede else None,
        _verification(verdict),
        class_="verdict",
    )


def _verification(verdict: VerdictPart) -> Html | None:
    sentence = verdict.verification_sentence
    return el("p", sentence) if sentence and sentence not in verdict.lede else None


def _facts(facts: tuple[Fact, ...], css: str) -> Html:
    rows = [el("div", el("dt", fact.name), el("dd", fact.value)) for fact in facts]
    return el("dl", *rows, class_=css)


def _pairs(facts: tuple[Fact, ...]) -> Html:
    cells = [cell for fact in facts for cell in (el("dt", fact.name), el("dd", fact.value))]
    return el("dl", *cells, class_="kv")


def _targets(document: ReportDocument) -> Html | None:
    if not document.targets:
        return None
    same = document.verdict.best_trial in (None, _current_ordinal(document))
    best = "Measured" if same else f"Trial {document.verdict.best_trial}"
    columns = [
        ("Target", False),
        ("Limit", True),
        (best, True),
        (figure.INTERVALS.removesuffix("s"), True),
        ("Headroom", True),
        ("Current", True),
        ("Verdict", False),
    ]
    rows = [_target_row(row) for row in document.targets]
    return join(el("h2", "Targets"), table("Targets", columns, rows), _reasons(document.targets))


def _current_ordinal(document: ReportDocument) -> int | None:
    return next((t.ordinal for t in document.trials if t.role == "current"), None)


def _target_row(row: TargetRow) -> list[str]:
    best, current = row.best, row.current
    sign = "≥" if row.higher_is_better else "≤"
    kind, word = words.TARGETS[best.verdict if best else "not_measured"]
    return [
        row.name,
        f"{sign} {_limit(row)}",
        el("b", units.metric(row.metric, best.value if best else None)),
        interval_text(row.metric, best),
        units.percent(best.headroom_frac) if best else units.DASH,
        _current_cell(row.metric, current),
        status(kind, word),
    ]


def _limit(row: TargetRow) -> str:
    target = SlaTarget.model_validate(
        {"metric": row.metric, "statistic": row.statistic, "limit": row.limit}
    )
    return limit_text(target)


def _current_cell(metric: str, current: Measured | None) -> str:
    text = units.metric(metric, current.value if current else None)
    if current is None or current.verdict != "missed":
        return text
    hidden = el("span", " missed", class_="visually-hidden")
    return el("span", status("bad", text), hidden, class_="over")


def interval_text(metric: str, value: Measured | None) -> str:
    """ "158 ms to 171 ms", "exact", or the dash where there is no interval."""
    if value is None or value.value is None:
        return units.DASH
    if value.basis == "exact":
        return "exact"
    if value.low is None or value.high is None:
        return units.DASH
    return f"{units.metric(metric, value.low)} to {units.metric(metric, value.high)}"


def _reasons(rows: tuple[TargetRow, ...]) -> Html | None:
    """Every verdict's ground, with its n: a number without it proves nothing."""
    items = [
        el("li", el("strong", f"{row.name}: "), f"{row.best.reason} (n = {row.best.n:,}).")
        for row in rows
        if row.best is not None and row.best.reason
    ]
    return el("ul", *items, class_="plain") if items else None


def _what_to_change(document: ReportDocument) -> Html | None:
    failing = [f for f in document.findings if f.verdict is Verdict.FAIL]
    if not failing:
        return None
    items = [el("li", el("strong", f"{_dot(f.title)} "), *_finding_text(f)) for f in failing]
    return join(el("h2", "What to change"), el("ol", *items, class_="steps"))


def _dot(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."


def _finding_text(finding: Finding) -> list[str]:
    parts: list[str] = [f"{_dot(item.text)} " for item in finding.evidence]
    if finding.effect is not None:
        effect = finding.effect
        sign = "+" if effect.change_frac > 0 else ""
        name = units.METRIC_NAMES.get(effect.metric, effect.metric)
        parts.append(f"{name} {sign}{units.percent(effect.change_frac)}, {effect.basis}. ")
    if finding.change is not None:
        parts.append(el("code", finding.change.text))
    return parts


def _launch(document: ReportDocument) -> Html | None:
    if not document.launch:
        return None
    lines = [
        join(el("span", line.text, class_="new" if line.changed else "same"), Html("\n"))
        for line in document.launch
    ]
    changes = [
        el("li", f"{knob_name(c.knob)}: {knob_text(c.current)} → {knob_text(c.recommended)}")
        for c in document.changes
    ]
    return join(
        el("h2", "Recommended settings" if document.changes else "Settings"),
        el("ul", *changes, class_="plain") if changes else None,
        el("pre", el("code", *lines), class_="command"),
    )


def _knobs(document: ReportDocument) -> Html | None:
    """What changes, by each engine's name for it; the whole table is in the JSON."""
    rows = [
        [line.name, f"{line.today} → {line.advised}", line.vllm, line.sglang, line.reason]
        for line in document.knobs
        if line.changed
    ]
    columns = [(name, False) for name in ("Setting", "Change", "vLLM", "SGLang", "Why")]
    return join(el("h2", "Settings by name"), table("Settings", columns, rows)) if rows else None


def _charts(document: ReportDocument) -> Html | None:
    drawn = [chart for chart in document.charts if chart.figure is not None]
    if not drawn:
        return None
    return join(el("h2", "Evidence"), *(_chart(chart) for chart in drawn))


def _chart(chart: ChartPart) -> Html:
    columns = list(zip(chart.columns, chart.numeric, strict=True))
    data = table(chart.title, columns, [list(row) for row in chart.rows])
    return el(
        "figure",
        el("figcaption", el("h3", chart.title, class_="chart__title"), class_="chart__head"),
        el("p", chart.note, class_="chart__note") if chart.note else None,
        Html(figure_svg(chart.figure, chart.label, height=260)) if chart.figure else None,
        el("details", el("summary", "Show data"), data, class_="data"),
        class_="chart",
    )


def _findings(document: ReportDocument) -> Html | None:
    others = [f for f in document.findings if f.verdict is not Verdict.FAIL]
    if not others:
        return None
    rows = [
        [status(*words.FINDINGS[f.verdict]), f.title, f.summary or f.missing or units.DASH]
        for f in others
    ]
    columns = [("Result", False), ("Finding", False), ("Why", False)]
    return join(el("h2", "All other findings"), table("Findings", columns, rows))


def _trials(document: ReportDocument) -> Html | None:
    if not document.trials:
        return None
    names = [(row.name, True) for row in document.targets]
    columns = [("Trial", False), ("Settings", False), *names, ("Outcome", False)]
    rows = [_trial_cells(trial, document.targets) for trial in document.trials]
    return join(el("h2", "Trials"), table("Trials", columns, rows))


def _trial_cells(trial: TrialRow, targets: tuple[TargetRow, ...]) -> list[str]:
    values = [
        units.metric(target.metric, measured.value)
        for target, measured in zip(targets, trial.targets, strict=True)
    ]
    kind, word = words.TRIALS[trial.state]
    if trial.validity == "invalid":
        kind, word = "warn", "Measurement invalid"
    outcome = join(
        status(kind, word),
        el("span", trial.failure, class_="sub") if trial.failure else None,
    )
    return [f"{trial.ordinal} · {trial.title}", trial.settings_text, *values, outcome]


def _lines(title: str, lines: tuple[str, ...]) -> Html | None:
    if not lines:
        return None
    items = [el("li", line) for line in lines]
    return join(el("h2", title), el("ul", *items, class_="plain"))


def _foot(document: ReportDocument) -> Html:
    context = document.context
    return el(
        "p",
        f"LLM Tuning Advisor {context.advisor_version}, report version"
        f" {document.report_version}, made {context.generated_at:%Y-%m-%d %H:%M} UTC. ",
        el("a", context.url, href=context.url),
        class_="quiet",
    )
