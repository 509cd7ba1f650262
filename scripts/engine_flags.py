"""Writes the catalogue of a serving engine's options: from the engine's own parser, or from a list.

    PYTHON_OF_THE_ENGINE scripts/engine_flags.py vllm   > advisor/catalog/data/flags-vllm-0.32.0.json
    PYTHON_OF_THE_ENGINE scripts/engine_flags.py sglang > advisor/catalog/data/flags-sglang-0.5.23.json
    python scripts/engine_flags.py --facts vllm-0.33.0.json > advisor/catalog/data/flags-vllm-0.33.0.json

Standard library alone, since it runs in the engine's environment. Descriptions are left out; the
engine's own `--help` has them. Needs no GPU and takes the 10-15 s that importing the engine takes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", nargs="?", choices=["vllm", "sglang"])
    parser.add_argument("--facts", type=Path, help="a list of options that was read elsewhere")
    chosen = parser.parse_args()
    if chosen.facts is not None:
        catalogue = from_facts(json.loads(chosen.facts.read_text(encoding="utf-8")))
    elif chosen.engine == "vllm":
        catalogue = from_vllm()
    elif chosen.engine == "sglang":
        catalogue = from_sglang()
    else:
        parser.error("name an engine or give --facts")
    text = ",\n  ".join(json.dumps(option, sort_keys=True) for option in catalogue.pop("options"))
    head = json.dumps(catalogue, indent=1, sort_keys=True)[:-2]
    sys.stdout.write(f'{head},\n "options": [\n  {text}\n ]\n}}\n')
    return 0


# --- from the engine ---------------------------------------------------------------------------


def from_vllm() -> dict[str, Any]:
    # Texts about deprecated options are left out of the parser without this.
    sys.argv = ["vllm", "serve", "--help=all"]
    import vllm
    import vllm.platforms

    try:
        platform = vllm.platforms.current_platform
        found = bool(platform.device_type)
    except (RuntimeError, AttributeError):
        found = False
    if not found:
        module = importlib.import_module("vllm.platforms.cpu")
        vllm.platforms.current_platform = module.CpuPlatform()
    for name in ("vllm.entrypoints.openai.cli_args", "vllm.entrypoints.common.cli_args",
                 "vllm.entrypoints.launchers.cli_args"):  # fmt: skip
        try:
            make = importlib.import_module(name).make_arg_parser
            break
        except (ImportError, AttributeError):
            continue
    else:
        raise SystemExit("this vLLM has its option parser in a place that is not known here")
    parser_class = None
    for name in ("vllm.utils.argparse_utils", "vllm.utils"):
        parser_class = getattr(importlib.import_module(name), "FlexibleArgumentParser", None)
        if parser_class is not None:
            break
    parser = make(parser_class())
    return {
        "engine": "vllm",
        "version": vllm.__version__,
        "source": "the option parser of the installed engine",
        "underscores": True,
        "dotted": True,
        "positional": True,
        "gone": [],
        "options": options_of(parser),
    }


def from_sglang() -> dict[str, Any]:
    import sglang
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return {
        "engine": "sglang",
        "version": sglang.__version__,
        "source": "the option parser of the installed engine",
        "underscores": False,
        "dotted": False,
        "positional": False,
        "gone": [],
        "options": options_of(parser),
    }


def options_of(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """One entry for each option; a spelling that argparse holds without showing it counts, too."""
    spellings: dict[int, list[str]] = {}
    for text, action in parser._option_string_actions.items():
        spellings.setdefault(id(action), []).append(text)
    found = []
    for action in parser._actions:
        names = spellings.get(id(action), [])
        if not names or isinstance(action, argparse._HelpAction):
            continue
        found.append(_option(action, names))
    return found


def _option(action: argparse.Action, names: list[str]) -> dict[str, Any]:
    option: dict[str, Any] = {"flags": names}
    if action.nargs == 0:
        option["kind"] = "bool"
        off = _negations(names, action.dest)
        if off:
            option["off"] = off
        return option
    types = _types(action.type)
    option["kind"] = _kind(types, bool(action.choices))
    if action.choices:
        option["choices"] = [str(value) for value in action.choices]
    if any(name.startswith("human_readable_int") for name in types):
        option["units"] = True
    if "_optional_type" in types:
        option["none"] = True
    if action.nargs in ("*", "+"):
        option["many"] = True
    if getattr(action, "deprecated", False):
        option["deprecated"] = True
    return option


def _negations(names: list[str], dest: str) -> list[str]:
    """Spellings that store false: those whose word is the opposite of what is stored."""
    word = dest.replace("_", "-")
    wrong = {f"--no-{word}"}
    for on, off in (("enable-", "disable-"), ("disable-", "enable-")):
        if word.startswith(on):
            wrong |= {f"--{off}{word.removeprefix(on)}", f"--no-{word}"}
    return [name for name in names if name in wrong]


def _types(kind: Any) -> list[str]:
    """Names of a type and of what its closures wrap, outermost first."""
    found: list[str] = []
    while callable(kind):
        found.append(getattr(kind, "__name__", str(kind)))
        cells = [cell.cell_contents for cell in getattr(kind, "__closure__", None) or ()]
        kind = next((value for value in cells if callable(value)), None)
    return found


def _kind(types: list[str], chosen: bool) -> str:
    last = types[-1] if types else "str"
    if last == "int" or last.startswith("human_readable_int"):
        return "int"
    if last == "float":
        return "float"
    if last in ("loads", "parse_dataclass", "json_dict_type"):
        return "json"
    if last == "union_dict_and_str":
        return "str_or_json"
    return "choice" if chosen else "str"


# --- from a list -------------------------------------------------------------------------------


def from_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """The same from a list of options with the keys flags, false_flags, type, choices, ..."""
    rules = facts["parser"]
    return {
        "engine": facts["engine"],
        "version": facts["version"],
        "source": f"the option parser of {facts['engine']} {facts['version']}",
        "underscores": rules["underscore_equals_dash"],
        "dotted": rules["dotted_json"],
        "positional": bool(rules["positional"]),
        "gone": [
            {
                "flag": gone["flag"],
                "refused": gone["status"].startswith("refused"),
                "use": gone.get("replacement"),
            }
            for gone in facts["often_advised_but_absent"]
        ],
        "options": [_listed(entry) for entry in facts["options"] if entry["flags"]],
    }


def _listed(entry: dict[str, Any]) -> dict[str, Any]:
    names = [*entry["flags"], *entry.get("hidden_flags", [])]
    option: dict[str, Any] = {"flags": names, "kind": entry["type"]}
    if entry.get("false_flags"):
        option["off"] = entry["false_flags"]
    if entry.get("choices"):
        option["choices"] = [str(value) for value in entry["choices"]]
    if entry.get("known_values"):
        option["known"] = [str(value) for value in entry["known_values"]]
    if entry.get("nargs") in ("*", "+"):
        option["many"] = True
    for key, name in (("units", "units"), ("accepts_none", "none"), ("required", "required")):
        if entry.get(key):
            option[name] = True
    if entry.get("deprecated"):
        option["deprecated"] = True
        option["use"] = entry.get("replacement")
    return option


if __name__ == "__main__":
    sys.exit(main())
