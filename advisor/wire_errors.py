"""Validation errors of wire types as field errors, for forms and for the API alike.

Keys are dotted paths into the spec ("targets.0.limit"), without the union tags that pydantic puts
into its locations; messages say what to change and never repeat the input.
"""

from __future__ import annotations

from typing import Any, get_args

from pydantic import ValidationError

from gpuagent.wire.trial import ExperimentConfig

SPEC = "__all__"
"""Key of an error that belongs to the whole value and to no field of it."""

# Tags of the unions: of a model, and of what a trial runs.
_TAGS = frozenset({"hub", "local", "config", "simulated", "imported"}).union(
    config.model_fields["experiment"].default for config in get_args(get_args(ExperimentConfig)[0])
)
_TAGGED = frozenset({"model", "measurements"})

_TEXTS: dict[str, str] = {
    "missing": "Fill in this field.",
    "extra_forbidden": "Remove this field: it is unknown.",
    "float_parsing": "Enter a number.",
    "float_type": "Enter a number.",
    "finite_number": "Enter a finite number.",
    "int_parsing": "Enter a whole number.",
    "int_type": "Enter a whole number.",
    "int_from_float": "Enter a whole number.",
    "string_type": "Enter text.",
    "bool_parsing": "Enter true or false.",
    "dict_type": "Enter a JSON object.",
    "greater_than": "Enter a number above {gt:g}.",
    "greater_than_equal": "Enter at least {ge:g}.",
    "less_than": "Enter a number below {lt:g}.",
    "less_than_equal": "Enter at most {le:g}.",
    "string_too_short": "Fill in this field.",
    "string_too_long": "Shorten this to at most {max_length} characters.",
    "too_long": "Keep at most {max_length} entries.",
    "too_short": "Give at least {min_length} entries.",
    "literal_error": "Choose one of {expected}.",
    "union_tag_invalid": "Choose one of {expected_tags}.",
    "union_tag_not_found": "Say which kind it is.",
}


def fields_from_validation_error(exc: ValidationError) -> dict[str, list[str]]:
    """Dotted field path -> messages, in the order pydantic found them."""
    fields: dict[str, list[str]] = {}
    for error in exc.errors(include_url=False, include_input=False):
        fields.setdefault(field_path(error["loc"]), []).append(_message(dict(error)))
    return fields


def field_path(loc: tuple[int | str, ...]) -> str:
    """("model", "hub", "id") -> "model.id"."""
    kept: list[str] = []
    for index, part in enumerate(loc):
        behind_union = index > 0 and loc[index - 1] in _TAGGED
        if behind_union and part in _TAGS and index < len(loc) - 1:
            continue
        kept.append(str(part))
    return ".".join(kept) or SPEC


def _message(error: dict[str, Any]) -> str:
    kind, context = error["type"], error.get("ctx") or {}
    if kind == "string_pattern_mismatch":
        return _pattern_message(error["loc"])
    if kind == "value_error":
        text = str(context.get("error") or error["msg"].removeprefix("Value error, "))
        if "_" not in text.partition(" ")[0]:
            text = text[:1].upper() + text[1:]
        return text + ("" if text.endswith(".") else ".")
    template = _TEXTS.get(kind)
    if template is None:
        return str(error["msg"]) + "."
    return template.format(**context)


def _pattern_message(loc: tuple[int | str, ...]) -> str:
    if loc and loc[-1] == "id":
        return "Enter the id as owner/name, for example Qwen/Qwen3-8B."
    if loc and loc[-1] == "revision":
        return "Enter the full commit, 40 hexadecimal digits."
    if loc and loc[-1] == "name":
        return "Leave out < and > and control characters."
    return "This does not have the expected form."
