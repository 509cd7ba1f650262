"""The report as Markdown (GitHub's dialect, for its tables); text is escaped, never markup."""

from __future__ import annotations

import re

from advisor.charts import figure
from advisor.i18n import spoken
from advisor.knobs import knob_name, knob_text
from advisor.reports import cells, words
from advisor.reports.document import ChartPart, Fact, ReportDocument
from advisor.reports.robustness import WORDS
from advisor.rules.rule import Verdict
from advisor.units import DASH

_MARKUP = re.compile(r"([\\`*_\[\]|~])")
# What would open a list, a heading or a quotation at the start of a line.
_BLOCK_START = re.compile(r"^(?:([-+](?=\s|$)|#{1,6}(?=\s|$)|>|=+$)|(\d{1,9})([.)])(?=\s|$))")


def to_md(document: ReportDocument) -> bytes:
    verdict, context = document.verdict, document.context
    blocks = [
        f"{text(f'LLM Tuning Advisor · Study {document.number} · {document.name}')}  \n"
        f"{text(f'{context.organisation} · {cells.report_date(document)}')}",
        f"**{text(cells.verdict_word(document)[1])}**",
        f"# {text(verdict.sentence)}",
        text(verdict.lede),
        text(cells.verification_text(document)),
        _facts(document.facts),
        *_targets(document),
        *_what_to_change(document),
        *_launch(document),
        *_knobs(document),
        *_charts(document),
        *_trials(document),
        *_robustness(document),
        *_lines("How it was measured", document.method),
    ]
    if document.environment:
        blocks += [heading("Environment"), _facts(document.environment)]
    blocks += _lines("Limits of validity", document.limits)
    blocks += _findings(document)
    blocks.append(f"{text(cells.made_by(document))}" + (f" <{context.url}>" if context.url else ""))
    return ("\n\n".join(block for block in blocks if block) + "\n").encode()


def text(value: str) -> str:
    """`value`, in the reader's language, so that Markdown prints it as it is, on one line."""
    line = " ".join(spoken(value).split("\n")).replace("\r", " ").strip()
    line = line.replace("&", "&amp;").replace("<", "&lt;")
    line = _MARKUP.sub(r"\\\1", line)
    return _BLOCK_START.sub(lambda m: f"\\{m[1]}" if m[1] else f"{m[2]}\\{m[3]}", line)


def heading(value: str, level: int = 2) -> str:
    return f"{'#' * level} {text(value)}"


def code(value: str) -> str:
    """A code span, whatever backticks it holds."""
    line = " ".join(value.splitlines())
    fence = "`" * (_longest_run(line) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def _longest_run(value: str) -> int:
    return max((len(run) for run in re.findall(r"`+", value)), default=0)


def _table(columns: list[tuple[str, bool]], rows: list[list[str]]) -> str:
    """columns: (name, numeric)."""
    lines = [
        [text(name) for name, _ in columns],
        ["---:" if numeric else "---" for _, numeric in columns],
        *([text(cell) for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _list(items: list[str], marker: str = "-") -> str:
    return "\n".join(f"{marker} {item}" for item in items)


def _facts(facts: tuple[Fact, ...]) -> str:
    return _list([f"**{text(fact.name)}:** {text(fact.value)}" for fact in facts])


def _targets(document: ReportDocument) -> list[str]:
    if not document.targets:
        return []
    columns = [
        ("Target", False),
        ("Limit", True),
        (cells.best_column(document), True),
        (figure.INTERVALS.removesuffix("s"), True),
        ("Headroom", True),
        ("Current", True),
        ("Verdict", False),
    ]
    rows = [
        [
            row.name,
            cells.limit_cell(row),
            cells.value_cell(row.metric, row.best),
            cells.interval_text(row.metric, row.best),
            cells.headroom_cell(row.best),
            cells.value_cell(row.metric, row.current)
            + (" missed" if row.current is not None and row.current.verdict == "missed" else ""),
            cells.target_word(row.best)[1],
        ]
        for row in document.targets
    ]
    reasons = [f"**{text(name)}:** {text(why)}" for name, why in cells.target_reasons(document)]
    return [heading("Targets"), _table(columns, rows), _list(reasons)]


def _what_to_change(document: ReportDocument) -> list[str]:
    failing = [f for f in document.findings if f.verdict is Verdict.FAIL]
    if not failing:
        return []
    items = []
    for finding in failing:
        parts = [f"**{text(cells.dot(finding.title))}**"]
        parts += [text(sentence) for sentence in cells.finding_sentences(finding)]
        if finding.change is not None:
            parts.append(code(spoken(finding.change.text)))
        items.append(" ".join(parts))
    return [heading("What to change"), _list(items, "1.")]


def _launch(document: ReportDocument) -> list[str]:
    if not document.launch:
        return []
    changes = [
        text(f"{knob_name(c.knob)}: {knob_text(c.current)} → {knob_text(c.recommended)}")
        for c in document.changes
    ]
    body = "\n".join(line.text for line in document.launch)
    fence = "`" * max(3, _longest_run(body) + 1)
    title = heading("Recommended settings") if document.changes else heading("Settings")
    return [title, _list(changes), f"{fence}\n{body}\n{fence}"]


def _knobs(document: ReportDocument) -> list[str]:
    rows = cells.knob_rows(document)
    return [heading("Settings by name"), _table(cells.KNOB_COLUMNS, rows)] if rows else []


def _charts(document: ReportDocument) -> list[str]:
    drawn = [chart for chart in document.charts if chart.figure is not None]
    if not drawn:
        return []
    return [heading("Evidence"), *(block for chart in drawn for block in _chart(chart))]


def _chart(chart: ChartPart) -> list[str]:
    """Title, note and the numbers that the other formats draw."""
    columns = list(zip(chart.columns, chart.numeric, strict=True))
    return [
        heading(chart.title, 3),
        text(chart.note),
        _table(columns, [list(row) for row in chart.rows]),
    ]


def _findings(document: ReportDocument) -> list[str]:
    others, silent = cells.other_findings(document), cells.not_applicable(document)
    if not others and not silent:
        return []
    rows = [[words.FINDINGS[f.verdict][1], f.title, f.summary or f.missing or DASH] for f in others]
    columns = [("Result", False), ("Finding", False), ("Why", False)]
    items = [f"**{text(cells.dot(why))}** {text(titles)}" for why, titles in silent]
    return [
        heading("All other findings"),
        _table(columns, rows) if rows else "",
        heading("Rules that do not apply", 3) if items else "",
        _list(items),
    ]


def _trials(document: ReportDocument) -> list[str]:
    if not document.trials:
        return []
    names = [(row.name, True) for row in document.targets]
    columns = [("Trial", False), ("Settings", False), *names, ("Outcome", False)]
    rows = [
        [
            cells.trial_name(trial),
            trial.settings_text,
            *cells.trial_values(trial, document.targets),
            cells.trial_word(trial)[1] + (f" {trial.failure}" if trial.failure else ""),
        ]
        for trial in document.trials
    ]
    return [heading("Trials"), _table(columns, rows)]


def _robustness(document: ReportDocument) -> list[str]:
    part = document.robustness
    if part is None:
        return []
    rows = [[line.name, WORDS[line.verdict][1], line.sentence] for line in part.lines]
    return [
        heading("Robustness"),
        text(f"{part.summary}. Trial {part.trial}: {part.title}."),
        _table(cells.ROBUSTNESS_COLUMNS, rows),
        _list([text(note) for note in part.notes]),
    ]


def _lines(title: str, lines: tuple[str, ...]) -> list[str]:
    return [heading(title), _list([text(line) for line in lines])] if lines else []
