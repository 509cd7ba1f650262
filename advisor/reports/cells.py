"""Texts of the report's tables, chosen once: HTML, Markdown and PDF print the same words.

CSV and JSON carry the numbers themselves, in SI units.
"""

from __future__ import annotations

from collections import Counter

from advisor import units
from advisor.i18n import ENGLISH, language_spoken
from advisor.reports import words
from advisor.reports.document import Measured, ReportDocument, TargetRow, TrialRow
from advisor.reports.words import Word
from advisor.rules.rule import Finding, Verdict
from advisor.targets import limit_text
from gpuagent.wire import SlaTarget


def report_date(document: ReportDocument) -> str:
    day = document.context.generated_at
    return f"{day.day} {day:%B %Y}" if language_spoken() == ENGLISH else f"{day:%Y-%m-%d}"


def verdict_word(document: ReportDocument) -> Word:
    """Kind and word of the whole study."""
    kind, word = words.VERDICTS[document.verdict.status]
    if document.state in ("running", "waiting"):
        kind, word = "run", "Not finished"
    if document.verdict.verification == "verified":
        word = f"{word}, verified by A/B"
    return kind, word


def verification_text(document: ReportDocument) -> str:
    """The verification in a sentence, or nothing where the lede says it already."""
    sentence = document.verdict.verification_sentence
    return sentence if sentence and sentence not in document.verdict.lede else ""


def best_column(document: ReportDocument) -> str:
    """What the column of the best trial's values is called."""
    current = next((t.ordinal for t in document.trials if t.role == "current"), None)
    same = document.verdict.best_trial in (None, current)
    return "Measured" if same else f"Trial {document.verdict.best_trial}"


def limit_cell(row: TargetRow) -> str:
    target = SlaTarget.model_validate(
        {"metric": row.metric, "statistic": row.statistic, "limit": row.limit}
    )
    return f"{'≥' if row.higher_is_better else '≤'} {limit_text(target)}"


def value_cell(metric: str, value: Measured | None) -> str:
    return units.metric(metric, value.value if value else None)


def headroom_cell(value: Measured | None) -> str:
    return units.percent(value.headroom_frac) if value else units.DASH


def target_word(value: Measured | None) -> Word:
    return words.TARGETS[value.verdict if value else "not_measured"]


def interval_text(metric: str, value: Measured | None) -> str:
    """ "158 ms to 171 ms", "exact", or the dash where there is no interval."""
    if value is None or value.value is None:
        return units.DASH
    if value.basis == "exact":
        return "exact"
    if value.low is None or value.high is None:
        return units.DASH
    return f"{units.metric(metric, value.low)} to {units.metric(metric, value.high)}"


def target_reasons(document: ReportDocument) -> list[tuple[str, str]]:
    """(target, ground of its verdict with n): a number without it proves nothing."""
    return [
        (row.name, f"{row.best.reason} (n = {row.best.n:,}).")
        for row in document.targets
        if row.best is not None and row.best.reason
    ]


def dot(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."


def finding_sentences(finding: Finding) -> list[str]:
    """Evidence and effect of a failing finding, one sentence each."""
    parts = [dot(item.text) for item in finding.evidence]
    if finding.effect is not None:
        effect = finding.effect
        sign = "+" if effect.change_frac > 0 else ""
        name = units.EFFECT_NAMES.get(effect.metric, effect.metric)
        parts.append(f"{name} {sign}{units.percent(effect.change_frac)}, {effect.basis}.")
    return parts


def other_findings(document: ReportDocument) -> list[Finding]:
    """What is known and needs no change; rules that do not apply are `not_applicable`."""
    silent = (Verdict.FAIL, Verdict.NOT_APPLICABLE)
    return [f for f in document.findings if f.verdict not in silent]


def not_applicable(document: ReportDocument) -> list[tuple[str, str]]:
    """(reason, titles of the rules that say nothing for it), the most frequent reason first."""
    by_reason: dict[str, list[str]] = {}
    for finding in document.findings:
        if finding.verdict is Verdict.NOT_APPLICABLE:
            by_reason.setdefault(finding.missing or "No reason given", []).append(finding.title)
    ordered = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    return [(reason, "; ".join(_counted(titles))) for reason, titles in ordered]


def _counted(titles: list[str]) -> list[str]:
    """Each title once, with how often where several rules share it."""
    return [f"{text} ({n} rules)" if n > 1 else text for text, n in Counter(titles).items()]


def trial_name(trial: TrialRow) -> str:
    return f"{trial.ordinal} · {trial.title}"


def trial_values(trial: TrialRow, targets: tuple[TargetRow, ...]) -> list[str]:
    return [
        value_cell(target.metric, measured)
        for target, measured in zip(targets, trial.targets, strict=True)
    ]


def trial_word(trial: TrialRow) -> Word:
    if trial.validity == "invalid":
        return "warn", "Measurement invalid"
    return words.TRIALS[trial.state]


def made_by(document: ReportDocument) -> str:
    context = document.context
    return (
        f"LLM Tuning Advisor {context.advisor_version}, report version"
        f" {document.report_version}, made {context.generated_at:%Y-%m-%d %H:%M} UTC."
    )


ROBUSTNESS_COLUMNS = [(name, False) for name in ("Misuse", "Result", "What was seen")]
KNOB_COLUMNS = [(name, False) for name in ("Setting", "Change", "vLLM", "SGLang", "Why")]


def knob_rows(document: ReportDocument) -> list[list[str]]:
    """What changes, by each engine's name for it; the whole table is in the JSON."""
    return [
        [line.name, f"{line.today} → {line.advised}", line.vllm, line.sglang, line.reason]
        for line in document.knobs
        if line.changed
    ]
