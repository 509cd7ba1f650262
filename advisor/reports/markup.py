"""HTML from plain calls, escaped by default: what is not `Html` is text.

Text is said in the reader's language here, in one place; `Verbatim` is for what is nobody's prose.
"""

from __future__ import annotations

from html import escape

from advisor.i18n import spoken


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


class Verbatim(str):
    """Text that is a name, a command or a path: never translated."""

    __slots__ = ()


Child = str | None


def el(tag: str, *children: Child, **attributes: str | None) -> Html:
    """`<tag …>children</tag>`; `class_` stands for class, `_` for `-`, None leaves out."""
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value, quote=True)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Html(f"<{tag}{named}>{join(*children)}</{tag}>")


def join(*children: Child) -> Html:
    """Children side by side; None is nothing."""
    return Html("".join(_text(child) for child in children if child is not None))


def _text(child: str) -> str:
    if isinstance(child, Html):
        return child
    return escape(child if isinstance(child, Verbatim) else spoken(child), quote=False)


def table(
    caption: str, columns: list[tuple[str, bool]], rows: list[list[str]], wraps: bool = False
) -> Html:
    """columns: (name, numeric). The first cell of a row is its header. wraps: it holds prose."""
    head = [
        el("th", name, scope="col", class_="num" if numeric else None) for name, numeric in columns
    ]
    body = []
    for row in rows:
        first = el("th", row[0], scope="row", class_="num" if columns[0][1] else None)
        cells = [
            el("td", cell, class_="num" if numeric else None)
            for cell, (_, numeric) in zip(row[1:], columns[1:], strict=True)
        ]
        body.append(el("tr", first, *cells))
    return el(
        "div",
        el(
            "table",
            el("caption", caption, class_="visually-hidden"),
            el("thead", el("tr", *head)),
            el("tbody", *body),
            class_="table table--tight table--prose" if wraps else "table table--tight",
        ),
        class_="table-wrap",
        # It may scroll on narrow screens, also by keyboard.
        tabindex="0",
        role="region",
        aria_label=spoken(caption),
    )


def status(kind: str, word: str, chip: bool = False) -> Html:
    """Shape, colour and word together."""
    shape = el("span", class_=f"shape shape--{kind}", aria_hidden="true")
    return el("span", shape, word, class_=f"{'chip' if chip else 'status'} {kind}")
