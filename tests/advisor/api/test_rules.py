from __future__ import annotations

from django.test import Client

from advisor.rules import RULES


def test_the_catalogue_lists_every_rule_with_threshold_and_source(reader: Client) -> None:
    results = reader.get("/api/v1/rules").json()["results"]
    assert [rule["id"] for rule in results] == [rule.id for rule in RULES]
    assert results
    assert all(rule["threshold"] and rule["source"] and rule["why"] for rule in results)
