from __future__ import annotations

import os
from pathlib import Path

from advisor.exports.knob_table import BY_KNOB
from advisor.presets import PRESETS
from advisor.reports.document import study_facts
from advisor.scenarios import SCENARIOS, scenarios_markdown
from tests.builders import make_evidence, make_study_spec, make_workload

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scenarios.md"


def test_every_preset_has_an_objective_and_settings_of_the_knob_table() -> None:
    assert set(SCENARIOS) == set(PRESETS)
    for key, scenario in SCENARIOS.items():
        assert scenario.objective.endswith(".")
        assert set(scenario.knobs) <= set(BY_KNOB)
        assert PRESETS[key].trade_off
        assert PRESETS[key].targets_for(small=False)
        assert PRESETS[key].targets_for(small=True)


def test_a_study_says_what_its_scenario_trades() -> None:
    for key, preset in PRESETS.items():
        spec = make_study_spec(workload=make_workload(preset=key))
        facts = dict(study_facts(make_evidence(spec=spec)))
        assert facts["Trade-off"] == preset.trade_off
        assert facts["Objective"] == SCENARIOS[key].objective


def test_the_page_of_docs_is_current() -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(scenarios_markdown())
    assert PAGE.read_text() == scenarios_markdown(), "UPDATE_GOLDEN=1 writes it anew"
