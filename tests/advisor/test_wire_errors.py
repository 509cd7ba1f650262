from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from advisor import wire_errors
from advisor.wire_errors import SPEC, field_path, fields_from_validation_error
from gpuagent.wire import StudySpec
from tests.builders import make_study_spec

GOOD = make_study_spec().model_dump(mode="json")


def refused(**changes: Any) -> dict[str, list[str]]:
    with pytest.raises(ValidationError) as caught:
        StudySpec.model_validate({**GOOD, **changes})
    return fields_from_validation_error(caught.value)


def test_a_good_spec_is_the_starting_point() -> None:
    assert StudySpec.model_validate(GOOD)


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"name": " "}, "name", "Fill in this field."),
        ({"model": {"kind": "hub", "id": "x y"}}, "model.id", "owner/name"),
        ({"model": {"kind": "zip"}}, "model", "Choose one of"),
        ({"model": {"kind": "local"}}, "model.name", "Fill in this field."),
        ({"budget_s": 0}, "budget_s", "above 0."),
        ({"budget_s": "soon"}, "budget_s", "Enter a number."),
        ({"budget_s": float("nan")}, "budget_s", "number"),
        ({"surprise": 1}, "surprise", "unknown"),
        ({"current": {"threads": 0}}, "current.threads", "at least 1."),
        ({"current": {"dtype": "int3"}}, "current.dtype", "Choose one of"),
    ],
)
def test_every_error_names_its_field_and_the_fix(
    changes: dict[str, Any], path: str, words: str
) -> None:
    fields = refused(**changes)
    assert list(fields) == [path]
    assert words in fields[path][0]


def test_a_target_is_named_by_its_place() -> None:
    fields = refused(
        targets=[
            {"metric": "ttft_s", "statistic": "p95", "limit": 0},
            {"metric": "itl_s", "statistic": "peak", "limit": 1},
        ]
    )
    assert fields["targets.0.limit"] == ["Enter a number above 0."]
    assert fields["targets.1"] == ["itl_s is judged by p50, p90, p95, p99, mean."]


def test_an_error_of_the_whole_value_has_its_own_key() -> None:
    target = {"metric": "ttft_s", "statistic": "p95", "limit": 1}
    assert refused(targets=[target, target]) == {
        SPEC: ["Two targets for ttft_s:p95: keep one of them."]
    }


def test_union_tags_are_not_part_of_a_path_but_keys_of_a_config_are() -> None:
    assert field_path(("model", "hub", "id")) == "model.id"
    assert field_path(("model", "config", "config")) == "model.config"
    assert field_path(("model", "config")) == "model.config"
    assert field_path(()) == SPEC


def test_every_experiment_is_a_tag_and_no_field() -> None:
    """Of a union the tag stands in the path; a reader knows no such field."""
    assert {"tensor_parallel", "batching", "kv_cache", "serve", "imported"} <= wire_errors._TAGS
