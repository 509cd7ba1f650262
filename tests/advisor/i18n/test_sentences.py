"""Reading a composed English text back into its templates."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from advisor.i18n import say, speaking, spoken
from advisor.i18n.sentences import LONGEST, Sentences, catalogue, locale_of
from advisor.i18n.template import Template

CATALOGUE = Sentences(
    {
        "Running requests": "运行请求数",
        "measured": "实测",
        "Trial {0} meets {1}": "试验 {0} 满足{1}",
        "both targets": "两个目标",
        "{0} of {1}": "{1} 中的 {0}",
        "{0} of {1} requests failed": "{1} 个请求中有 {0} 个失败",
        "{0} trial{1} left": "还剩 {0} 个试验",
        "Nothing was measured.": "什么都没有测到。",
        "The host waits ({0} of it). Use graphs.": "主机在等待（其中 {0}）。请用 graph。",
        "; the limit is {0}": "；限值为 {0}",
        "the set {{a}}": "集合 {{a}}",
        "It took {0}.{1}": "用了 {0}。{1}",
    }
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Running requests", "运行请求数"),
        ("running requests", "运行请求数"),
        ("Trial 3 meets both targets", "试验 3 满足两个目标"),
        ("3 of 8 requests failed", "8 个请求中有 3 个失败"),
        ("3 of 8", "8 中的 3"),
        ("1 trial left", "还剩 1 个试验"),
        ("2 trials left.", "还剩 2 个试验。"),
        ("Nothing was measured", "什么都没有测到"),
        ("Nothing was measured. 2 trials left.", "什么都没有测到。还剩 2 个试验。"),
        (
            "Trial 3 meets both targets; the limit is 4\u00a0ms",
            "试验 3 满足两个目标；限值为 4\u00a0ms",
        ),
        ("running requests 8", "运行请求数 8"),
        ("12\u00a0ms (measured)", "12\u00a0ms（实测）"),
        ("The host waits", "主机在等待"),
        ("Use graphs.", "请用 graph。"),
        ("the set {a}", "集合 {a}"),
        ("  Running requests ", "  运行请求数 "),
        ("It took 0.7. Both targets", "用了 0.7。两个目标"),
    ],
)
def test_a_text_is_taken_apart(text: str, expected: str) -> None:
    assert CATALOGUE.say(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "–",
        "12\u00a0ms",
        "--max-num-seqs 8",
        "Qwen/Qwen3-32B",
        "Nobody wrote this sentence down",
    ],
)
def test_what_is_not_known_stays(text: str) -> None:
    assert CATALOGUE.say(text) == text


def test_names_of_users_stay_where_a_placeholder_holds_them() -> None:
    assert CATALOGUE.say("Trial 3 meets measured") == "试验 3 满足实测"
    assert (
        CATALOGUE.say("Trial 3 meets measured", frozenset({"measured"})) == "试验 3 满足 measured"
    )


def test_a_translation_may_not_invent_a_placeholder() -> None:
    with pytest.raises(ValueError, match="2"):
        Template.of("{0} and {1}", "{2}")


def test_speaking_holds_inside_and_ends_behind() -> None:
    with speaking("zh-hans", names={"Valid"}):
        assert spoken("Not measured") == say("Not measured", "zh-hans") != "Not measured"
        assert spoken("Valid") == "Valid"
    assert spoken("Not measured") == "Not measured"


def test_english_and_unknown_languages_are_left_alone() -> None:
    for language in ("en", "en-gb", "tlh"):
        assert say("Not measured", language) == "Not measured"
    assert locale_of("zh-hans") == "zh_Hans"
    assert locale_of("pt-br") == "pt_BR"


VALUES = st.sampled_from(
    [
        "12",
        "0.7",
        "1,024",
        "151\u00a0ms",
        "95\u00a0%",
        "74.1\u00a0GiB",
        "float16",
        "vLLM",
        "H100",
        "3",
    ]
)


@given(st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_every_template_is_found_again(data: st.DataObject) -> None:
    """With plausible values inside, nothing English is left and every value is still there."""
    chinese = catalogue("zh-hans")
    assert chinese is not None
    template = data.draw(st.sampled_from(chinese.templates))
    # What a translation leaves out is grammar.
    values = [
        data.draw(VALUES) if index in template.pieces else "s"
        for index in range(len(template.literals) - 1)
    ]
    text = template.literals[0] + "".join(
        value + literal for value, literal in zip(values, template.literals[1:], strict=True)
    )
    # A point or comma between two digits belongs to a number; no page puts one there as a mark.
    lone = [i for i, literal in enumerate(template.literals[1:-1]) if literal in (".", ",")]
    assume(not any(values[i][-1].isdigit() and values[i + 1][0].isdigit() for i in lone))
    read = chinese.read(text.strip())
    assert not read.left, text
    kept = {piece for piece in template.pieces if isinstance(piece, int)}
    apart = all(any(map(str.isalpha, literal)) for literal in template.literals[1:-1])
    if read.parts == 1 and len(kept) == len(values) and apart:
        for value in values:
            assert value.replace("\u00a0", " ").split()[0] in read.text.replace("\u00a0", " ")


@pytest.mark.parametrize(
    "text",
    [
        "a, " * 1300,
        "of the " * 570,
        "Trial 1 meets " * 280,
        "; ".join(["the limit is 4 ms"] * 200),
        "(" * 2000 + ")" * 1999,
        "x" * (5 * LONGEST),
    ],
)
def test_hostile_texts_end(text: str) -> None:
    """The work is bounded, whatever the text: counted in readings, not in seconds."""
    fresh = catalogue.__wrapped__("zh-hans")
    assert fresh is not None
    fresh.say(text)
    assert fresh.readings < 20_000
