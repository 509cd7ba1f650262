from __future__ import annotations

from typing import get_args

import pytest

from advisor.presets import PRESETS, ScenarioPreset
from gpuagent.stats import samples_needed, samples_to_prove
from gpuagent.wire import StudySpec
from gpuagent.wire.workload import Preset
from tests.builders import make_study_spec


def test_every_preset_of_the_wire_is_there() -> None:
    assert set(PRESETS) == set(get_args(Preset))
    assert all(key == preset.key for key, preset in PRESETS.items())


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.key)
@pytest.mark.parametrize("small", [False, True])
def test_requests_are_enough_to_show_and_prove_every_percentile(
    preset: ScenarioPreset, small: bool
) -> None:
    workload = preset.workload_for(small=small)
    assert workload.preset == preset.key
    assert workload.request_rate_per_s is None
    for target in preset.targets_for(small=small):
        if target.percentile is not None:
            assert workload.requests >= samples_needed(target.percentile)
            assert workload.requests >= samples_to_prove(target.percentile, 0.95, 0)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.key)
def test_a_preset_makes_a_valid_study(preset: ScenarioPreset) -> None:
    for small in (False, True):
        spec = make_study_spec(
            workload=preset.workload_for(small=small), targets=preset.targets_for(small=small)
        )
        assert StudySpec.model_validate(spec.model_dump()) == spec
    assert (
        preset.workload_for(small=True).output_tokens.mean
        < preset.workload_for(small=False).output_tokens.mean
    )
