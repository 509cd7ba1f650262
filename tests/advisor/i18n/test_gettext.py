"""Marked texts are read in the language of the request, never in that of the first import."""

from __future__ import annotations

import ast
from pathlib import Path

import advisor

ROOT = Path(advisor.__file__).parent


def early(tree: ast.Module) -> list[int]:
    """Lines on which a module calls gettext while it is imported."""
    plain = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "django.utils.translation"
        for alias in node.names
        if alias.name in {"gettext", "ngettext", "pgettext"}
    }
    found: list[int] = []
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in plain:
            found.append(node.lineno)
        waiting.extend(ast.iter_child_nodes(node))
    return sorted(found)


def test_no_module_translates_while_it_is_imported() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in ROOT.rglob("*.py")
        for line in early(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert not found, "use gettext_lazy in tables of a module"
