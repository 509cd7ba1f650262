from __future__ import annotations

import pytest

from advisor.charts import Chart, ChartInput, chart
from advisor.charts.kv_blocks import empty_frac
from tests.builders import make_current, make_evidence, make_kv_trial
from tests.inside_builders import make_cache_details


def drawn(chart_id: str, *trials: object) -> Chart:
    return chart(chart_id, ChartInput(make_evidence(*trials), None, None))


def test_forms_and_dtypes_stand_side_by_side() -> None:
    found = drawn("kv-forms", make_current(), make_kv_trial(details=make_cache_details()))
    assert found.title.startswith("Static is fastest")
    names = [row[0] for row in found.rows]
    assert names[:3] == ["Growing", "Static", "Quantised"]
    assert names[3:] == ["Growing, stored in float32", "Growing, stored in float8_e4m3fn"]
    assert "no concatenation of float8" in found.rows[-1]
    assert found.rows[0][3] == "40"


def test_an_engine_that_runs_elsewhere_has_no_forms() -> None:
    assert drawn("kv-forms", make_current(), make_kv_trial()).is_empty


def test_empty_places_of_a_block_are_counted_over_the_answer() -> None:
    # Held tokens 5, 6, 7 in blocks of 4: two blocks each time, 18 of 24 places.
    assert empty_frac([(5, 3)], 4) == pytest.approx(1 - 18 / 24)
    assert empty_frac([(5, 3), (400, 100)], 1) == 0.0


def test_larger_blocks_leave_more_empty_and_one_block_for_all_the_most() -> None:
    found = drawn("kv-blocks", make_current(), make_kv_trial())
    shares = [float(row[1].rstrip("%").strip()) for row in found.rows]
    assert shares[0] == 0.0
    assert shares[:-1] == sorted(shares[:-1])
    assert "Computed, not measured" in found.note
    assert found.rows[-1][2] == "1"


def test_without_requests_there_are_no_lengths() -> None:
    assert drawn("kv-blocks", make_kv_trial()).is_empty
