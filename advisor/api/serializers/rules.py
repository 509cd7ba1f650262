"""The catalogue of rules."""

from __future__ import annotations

from advisor.api.serializers.base import Answer, Page
from advisor.rules.rule import Rule


class RuleAnswer(Answer):
    """One rule: what it looks for, how that is measured, and when it does not apply."""

    id: str
    group: str
    title: str
    failing_title: str
    why: str
    how_measured: str
    threshold: str
    source: str
    when_not: str
    needs: list[str]
    knobs: list[str]


class RulePage(Page[RuleAnswer]):
    pass


def rule_answer(rule: Rule) -> RuleAnswer:
    return RuleAnswer(
        id=rule.id,
        group=rule.group,
        title=rule.title,
        failing_title=rule.failing_title,
        why=rule.why,
        how_measured=rule.how_measured,
        threshold=rule.threshold,
        source=rule.source,
        when_not=rule.when_not,
        needs=list(rule.needs),
        knobs=list(rule.knobs),
    )
