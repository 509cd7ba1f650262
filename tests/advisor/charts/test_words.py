"""A figure in other words: the same picture, and nothing but texts changed."""

from __future__ import annotations

from advisor.charts import figure
from advisor.charts.words import said_figure


def shout(text: str) -> str:
    return text.upper()


def drawn() -> figure.Figure:
    return {
        "data": [
            figure.line([1, 2], [3, 4], name="current", colour=figure.CURRENT, hover="a<br>%{x} b"),
            figure.points([1], ["fast"], name="best", colour=figure.BEST, hover=["one"]),  # type: ignore[list-item]
        ],
        "layout": {
            "xaxis": figure.axis("rate", type="log", ticktext=["low"]),
            "annotations": [{**figure.label("limit", x=1), "name": "narrow"}],
        },
    }


def test_texts_are_said_and_the_rest_stays() -> None:
    before = drawn()
    said = said_figure(before, shout)
    line, points = said["data"]
    assert (line["name"], line["x"], line["line"]) == ("CURRENT", [1, 2], before["data"][0]["line"])
    # The markup between the texts is plotly's.
    assert line["hovertemplate"] == "A<br>%{X} B<extra></extra>"
    assert (points["y"], points["text"], points["mode"]) == (["FAST"], ["ONE"], "markers")
    layout = said["layout"]
    assert layout["xaxis"]["title"]["text"] == "RATE"
    assert (layout["xaxis"]["type"], layout["xaxis"]["ticktext"]) == ("log", ["LOW"])
    note = layout["annotations"][0]
    assert (note["text"], note["name"], note["font"]["color"]) == (
        "LIMIT",
        "narrow",
        "token:ink-3",
    )
    assert before == drawn()


def test_thousands_of_points_keep_their_names() -> None:
    line, points = said_figure(drawn(), shout, points=False)["data"]
    assert (points["name"], points["text"]) == ("BEST", ["one"])
    assert line["hovertemplate"].startswith("a<br>")
