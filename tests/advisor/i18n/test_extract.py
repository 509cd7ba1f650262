"""What counts as a text for people, and how it becomes the key of its translation."""

from __future__ import annotations

import pytest

from advisor.i18n.extract import is_prose, sentences_in


def texts(source: str) -> list[str]:
    return [sentence.text for sentence in sentences_in(source)]


def test_an_f_string_becomes_a_template_and_says_what_it_holds() -> None:
    (found,) = sentences_in('title = f"Trial {trial.ordinal} meets {count:,} targets"')
    assert found.text == "Trial {0} meets {1} targets"
    assert found.holds == ("trial.ordinal", "count")


def test_literal_braces_are_doubled() -> None:
    assert texts('x = f"the set {{a}} of {n} things"') == ["the set {{a}} of {0} things"]


def test_strings_side_by_side_are_one_text() -> None:
    assert texts('x = ("It was measured " f"with {n} requests.")') == [
        "It was measured with {0} requests."
    ]


def test_a_choice_inside_an_f_string_is_a_text_of_its_own() -> None:
    found = texts("x = f\"{n} {'configuration was' if n == 1 else 'configurations were'} tried\"")
    assert found == ["{0} {1} tried", "configuration was", "configurations were"]


@pytest.mark.parametrize(
    "source",
    [
        '"""A module is documented."""',
        'logger.warning("the broker is away")',
        'x = gettext("Marked for Django")',
        'x = row["Name"]',
        'done = state == "Finished"',
        '__all__ = ["Chart", "Column"]',
        'x = re.compile("one or two")',
        'x = "snake_case"',
        'x = "/studies/one two"',
        'x = "--flag with value"',
    ],
)
def test_what_is_no_text_for_people(source: str) -> None:
    assert texts(source) == []


def test_lines_beside_the_pointer_have_placeholders_of_their_own() -> None:
    (found,) = sentences_in('hover = f"{name}<br>%{{x}} tokens: %{{y}} {unit}"')
    assert (found.text, found.holds) == ("%{{x}} tokens: %{{y}} {0}", ("unit",))


def test_a_lone_word_needs_a_capital() -> None:
    assert is_prose("Measured")
    assert not is_prose("measured")
    assert not is_prose("{0}, {1}")
