"""The options of an engine's version, from `advisor/catalog/data/flags-<engine>-<version>.json`.

Written by `scripts/engine_flags.py` from the engine's own parser. Parsers accept unique prefixes
of a flag, too; only exact spellings count here: a prefix stops working when an option is added.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Literal

from advisor.catalog import data_files

Kind = Literal["bool", "int", "float", "str", "choice", "json", "str_or_json"]
_PREFIX = "flags-"


@dataclass(frozen=True, slots=True)
class Option:
    """flags: all spellings, the usual one first. off: those of a switch that store false.

    units: takes 8k (thousands) and 8K (1024). none: the text None is a value. many: takes several
    values. use: what replaces a deprecated option.
    """

    flags: tuple[str, ...]
    kind: Kind
    off: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    units: bool = False
    none: bool = False
    many: bool = False
    required: bool = False
    deprecated: bool = False
    use: str | None = None

    @property
    def name(self) -> str:
        return self.flags[0]


@dataclass(frozen=True, slots=True)
class Gone:
    """A flag that guides still advise. refused: the parser stops; else it takes it as a prefix."""

    flag: str
    refused: bool
    use: str | None


@dataclass(frozen=True, slots=True)
class Catalogue:
    """One version of one engine. underscores: `--max_num_seqs` is `--max-num-seqs`. dotted:
    `--option.key value` sets a key of a JSON option. positional: a bare word is the model."""

    engine: str
    version: str
    source: str
    underscores: bool
    dotted: bool
    positional: bool
    options: tuple[Option, ...]
    gone: tuple[Gone, ...]
    by_flag: dict[str, Option] = field(repr=False)

    def close(self, flag: str) -> list[str]:
        """Spellings that look like `flag`, best first."""
        return difflib.get_close_matches(flag, self.by_flag, n=3, cutoff=0.7)

    def starting(self, prefix: str) -> list[Option]:
        """Options with a spelling that starts so, which the parser would take if there is one."""
        return [o for o in self.options if any(f.startswith(prefix) for f in o.flags)]


@cache
def versions() -> dict[str, tuple[str, ...]]:
    """engine -> its versions in the catalogue, newest first."""
    found: dict[str, list[str]] = {}
    for entry in resources.files("advisor.catalog").joinpath("data").iterdir():
        if entry.name.startswith(_PREFIX):
            engine, _, version = entry.name[len(_PREFIX) : -len(".json")].partition("-")
            found.setdefault(engine, []).append(version)
    return {
        engine: tuple(sorted(names, key=_numbers, reverse=True))
        for engine, names in sorted(found.items())
    }


@cache
def catalogue(engine: str, version: str | None = None) -> Catalogue:
    """The options of `engine`, by default of its newest version here. Raises KeyError, named."""
    known = versions()
    if engine not in known:
        raise KeyError(f"engine {engine!r} is not known; there is {', '.join(known)}")
    version = version or known[engine][0]
    if version not in known[engine]:
        raise KeyError(f"{engine} {version} is not known; there is {', '.join(known[engine])}")
    data = data_files.load(f"{_PREFIX}{engine}-{version}.json")
    options = tuple(_option(entry) for entry in data["options"])
    return Catalogue(
        engine=engine,
        version=version,
        source=data["source"],
        underscores=data["underscores"],
        dotted=data["dotted"],
        positional=data["positional"],
        options=options,
        gone=tuple(Gone(**entry) for entry in data["gone"]),
        by_flag={flag: option for option in options for flag in option.flags},
    )


def _option(entry: dict[str, object]) -> Option:
    lists = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
    return Option(**{**entry, **lists})  # type: ignore[arg-type]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
