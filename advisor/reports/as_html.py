"""The report as one HTML file that opens offline: own styles inside, charts as SVG, no script."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from pathlib import Path

from advisor import units
from advisor.charts import figure
from advisor.charts.svg import figure_svg
from advisor.charts.words import said_figure
from advisor.i18n import language_spoken, spoken
from advisor.knobs import knob_name, knob_text
from advisor.reports import cells, words
from advisor.reports.document import (
    ChartPart,
    Fact,
    Measured,
    ReportDocument,
    TargetRow,
    TrialRow,
)
from advisor.reports.markup import Html, Verbatim, el, join, status, table
from advisor.reports.robustness import WORDS
from advisor.rules.rule import Verdict

_CSS = Path(__file__).resolve().parents[2] / "static" / "css"
# Three charts with title and note fill a printed page.
CHART_HEIGHT = 236
_LAYERS = ("tokens", "reset", "base", "layout", "components", "tables", "report")


def to_html(document: ReportDocument) -> bytes:
    page = join(
        Html(f'<!doctype html>\n<html lang="{language_spoken()}">'),
        el(
            "head",
            Html('<meta charset="utf-8">'),
            Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html('<meta name="color-scheme" content="light dark">'),
            # The file keeps its promise wherever it is opened: no script, nothing from elsewhere.
            Html(f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'),
            Html('<meta name="robots" content="noindex">'),
            Html('<meta name="referrer" content="no-referrer">'),
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


def policy() -> str:
    """What the report may do: show its own style and its own pictures."""
    return f"default-src 'none'; style-src {style_source()}; img-src data:; base-uri 'none'"


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
        _trials(document),
        _robustness(document),
        _lines("How it was measured", document.method),
        el("h2", "Environment") if document.environment else None,
        _pairs(document.environment) if document.environment else None,
        _lines("Limits of validity", document.limits),
        # Last, since it is long: what was looked at and needs no change.
        _findings(document),
        _foot(document),
        class_="paper",
    )


def _head(document: ReportDocument) -> Html:
    return el(
        "div",
        el("span", f"LLM Tuning Advisor · Study {document.number} · {document.name}"),
        el("span", f"{document.context.organisation} · {cells.report_date(document)}"),
        class_="paper__head",
    )


def _verdict(document: ReportDocument) -> Html:
    verdict, verification = document.verdict, cells.verification_text(document)
    return el(
        "header",
        el("div", status(*cells.verdict_word(document), chip=True), class_="verdict__top"),
        el("h1", verdict.sentence),
        el("p", verdict.lede, class_="verdict__lede") if verdict.lede else None,
        el("p", verification) if verification else None,
        class_="verdict",
    )


def _facts(facts: tuple[Fact, ...], css: str) -> Html:
    rows = [el("div", el("dt", fact.name), el("dd", fact.value)) for fact in facts]
    return el("dl", *rows, class_=css)


def _pairs(facts: tuple[Fact, ...]) -> Html:
    cells = [cell for fact in facts for cell in (el("dt", fact.name), el("dd", fact.value))]
    return el("dl", *cells, class_="kv")


def _targets(document: ReportDocument) -> Html | None:
    if not document.targets:
        return None
    columns = [
        ("Target", False),
        ("Limit", True),
        (cells.best_column(document), True),
        (figure.INTERVALS.removesuffix("s"), True),
        ("Headroom", True),
        ("Current", True),
        ("Verdict", False),
    ]
    rows = [_target_row(row) for row in document.targets]
    return join(el("h2", "Targets"), table("Targets", columns, rows), _reasons(document))


def _target_row(row: TargetRow) -> list[str]:
    return [
        row.name,
        cells.limit_cell(row),
        el("b", cells.value_cell(row.metric, row.best)),
        cells.interval_text(row.metric, row.best),
        cells.headroom_cell(row.best),
        _current_cell(row.metric, row.current),
        status(*cells.target_word(row.best)),
    ]


def _current_cell(metric: str, current: Measured | None) -> str:
    text = cells.value_cell(metric, current)
    if current is None or current.verdict != "missed":
        return text
    hidden = el("span", " missed", class_="visually-hidden")
    return el("span", status("bad", text), hidden, class_="over")


def _reasons(document: ReportDocument) -> Html | None:
    items = [
        el("li", el("strong", f"{name}: "), reason)
        for name, reason in cells.target_reasons(document)
    ]
    return el("ul", *items, class_="plain") if items else None


def _what_to_change(document: ReportDocument) -> Html | None:
    failing = [f for f in document.findings if f.verdict is Verdict.FAIL]
    if not failing:
        return None
    items = [
        el(
            "li",
            el("strong", f"{cells.dot(f.title)} "),
            *(f"{text} " for text in cells.finding_sentences(f)),
            el("code", f.change.text) if f.change is not None else None,
        )
        for f in failing
    ]
    return join(el("h2", "What to change"), el("ol", *items, class_="steps"))


def _launch(document: ReportDocument) -> Html | None:
    if not document.launch:
        return None
    lines = [
        join(el("span", Verbatim(line.text), class_="new" if line.changed else "same"), Html("\n"))
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
    rows = cells.knob_rows(document)
    if not rows:
        return None
    return join(el("h2", "Settings by name"), table("Settings", cells.KNOB_COLUMNS, rows))


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
        Html(_picture(chart)) if chart.figure else None,
        el("details", el("summary", "Show data"), data, class_="data"),
        class_="chart",
    )


def _picture(chart: ChartPart) -> str:
    figure_said = said_figure(chart.figure or {}, spoken)
    return figure_svg(figure_said, spoken(chart.label), height=CHART_HEIGHT)


def _findings(document: ReportDocument) -> Html | None:
    others, silent = cells.other_findings(document), cells.not_applicable(document)
    if not others and not silent:
        return None
    rows = [
        [status(*words.FINDINGS[f.verdict]), f.title, f.summary or f.missing or units.DASH]
        for f in others
    ]
    columns = [("Result", False), ("Finding", False), ("Why", False)]
    items = [el("li", el("strong", f"{cells.dot(why)} "), titles) for why, titles in silent]
    return join(
        el("h2", "All other findings"),
        table("Findings", columns, rows, wraps=True) if rows else None,
        el("h3", "Rules that do not apply") if items else None,
        el("ul", *items, class_="plain fine") if items else None,
    )


def _trials(document: ReportDocument) -> Html | None:
    if not document.trials:
        return None
    names = [(row.name, True) for row in document.targets]
    columns = [("Trial", False), ("Settings", False), *names, ("Outcome", False)]
    rows = [_trial_cells(trial, document.targets) for trial in document.trials]
    return join(el("h2", "Trials"), table("Trials", columns, rows, wraps=True))


def _trial_cells(trial: TrialRow, targets: tuple[TargetRow, ...]) -> list[str]:
    outcome = join(
        status(*cells.trial_word(trial)),
        el("span", trial.failure, class_="sub") if trial.failure else None,
    )
    return [
        cells.trial_name(trial),
        trial.settings_text,
        *cells.trial_values(trial, targets),
        outcome,
    ]


def _robustness(document: ReportDocument) -> Html | None:
    part = document.robustness
    if part is None:
        return None
    rows = [[line.name, status(*WORDS[line.verdict]), line.sentence] for line in part.lines]
    notes = [el("li", note) for note in part.notes]
    return join(
        el("h2", "Robustness"),
        el("p", f"{part.summary}. Trial {part.trial}: {part.title}."),
        table("Robustness", cells.ROBUSTNESS_COLUMNS, rows, wraps=True),
        el("ul", *notes, class_="plain"),
    )


def _lines(title: str, lines: tuple[str, ...]) -> Html | None:
    if not lines:
        return None
    items = [el("li", line) for line in lines]
    return join(el("h2", title), el("ul", *items, class_="plain"))


def _foot(document: ReportDocument) -> Html:
    url = document.context.url
    link = el("a", Verbatim(url), href=url) if url else None
    return el("p", f"{cells.made_by(document)} ", link, class_="quiet")
