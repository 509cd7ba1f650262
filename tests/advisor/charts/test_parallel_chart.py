from __future__ import annotations

import pytest

from advisor.charts import Chart, ChartInput, chart, study_charts
from advisor.charts.svg import figure_svg
from advisor.evidence import DeviceFacts
from tests.builders import make_current, make_evidence, make_study_spec

H100 = DeviceFacts("bench-1", "gpu", "NVIDIA H100 80GB HBM3", 1, 85_000_000_000)


def drawn(device: DeviceFacts | None, goal: str = "diagnose") -> Chart:
    return chart("tensor-parallel", data(device, goal))


def data(device: DeviceFacts | None, goal: str = "diagnose") -> ChartInput:
    spec = make_study_spec(goal=goal)
    return ChartInput(make_evidence(make_current(), spec=spec, device=device), None, None)


def test_each_size_is_labelled_predicted_and_has_an_interval() -> None:
    found = drawn(H100)
    assert found.title.startswith("Predicted: ")
    assert found.note.startswith("Predicted, not measured")
    assert [row[0] for row in found.rows] == ["1", "2", "4", "8"]
    assert all("predicted" in row[6] for row in found.rows)
    assert found.figure is not None
    assert "<svg" in figure_svg(found.figure, found.label, height=260)


def test_a_size_that_does_not_divide_the_heads_says_so_and_has_no_time() -> None:
    # SmolLM2-135M has 9 query heads.
    for row in drawn(H100).rows[1:]:
        assert row[1] == "–"
        assert "9" in row[7]


@pytest.mark.parametrize(
    ("device", "words"),
    [
        (None, "as soon as the device is known"),
        (DeviceFacts("bench-1", "cpu", "EPYC", 1, 1 << 34), "ran on a processor"),
        (DeviceFacts("bench-1", "gpu", "Voodoo 2", 1, 1 << 34), "Voodoo 2"),
    ],
)
def test_without_a_known_gpu_the_box_says_why(device: DeviceFacts | None, words: str) -> None:
    found = drawn(device)
    assert found.is_empty
    assert words in (found.empty_reason or "")


def test_only_a_diagnosis_shows_it() -> None:
    def shown(goal: str) -> bool:
        groups = study_charts(data(H100, goal))
        return any(c.id == "tensor-parallel" for group in groups for c in group)

    assert shown("diagnose")
    assert not shown("optimise")
