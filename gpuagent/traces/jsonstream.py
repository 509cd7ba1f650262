"""Streams a Chrome-trace JSON: top-level values one by one, the event array in batches of dicts.

The trick that makes pure Python fast enough: cut the window behind a `}` that looks like the end of
an event and hand everything before it to the C decoder at once. If `[` + text + `]` parses, the cut
was at an event border, because a JSON parser has exactly one state after any prefix. If not, events
are decoded one at a time. Memory is one window plus the dicts of one batch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from gpuagent.traces.errors import TraceError, malformed, over_limit, truncated
from gpuagent.traces.limits import Limits

_BORDER = re.compile(r"\}\s*,\s*\{")
_SPACE = re.compile(r"[ \t\r\n]*")
# Possessive: a string of megabytes costs no backtracking memory. The last branch is an open string.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]|"', re.DOTALL)
_SCALAR = re.compile(r"[^\s,:\]}]*")
_CUT_TRIES = 3
_SMALL_VALUE = 1 << 20

Batch = list[Any]


class JsonStream:
    """Reads `{..., "traceEvents": [...], ...}` or a bare `[...]` from text chunks.

    `metadata` fills with the keys named in `keep` while `batches()` runs; other values and values
    over one mebibyte are stepped over. `again`
    switches to another number decoder (exact decimals for huge time stamps).
    """

    def __init__(
        self, chunks: Iterator[str], limits: Limits, keep: frozenset[str] = frozenset()
    ) -> None:
        self._chunks = chunks
        self._keep = keep
        self._limits = limits
        self._text = ""
        self._at = 0
        self._ended = False
        self._serial = 0
        self.metadata: dict[str, Any] = {}
        self.bare_list = False
        self.open_ended = False
        self._batch_text = ""
        self.float_parser: Callable[[str], Any] | None = None

    def batches(self) -> Iterator[Batch]:
        """Batches of decoded events; a TraceError where the text is not such a document."""
        opening = self._peek()
        if opening == "[":
            self.bare_list = True
            yield from self._array()
        elif opening == "{":
            yield from self._object()
        else:
            raise malformed("it is not JSON")

    def again(self, float_parser: Callable[[str], Any]) -> Batch:
        """The batch just yielded, decoded anew with `float_parser`, which then stays in force."""
        self.float_parser = float_parser
        batch: Batch = self._loads(self._batch_text)
        return batch

    # --- the top level ---------------------------------------------------------------------

    def _object(self) -> Iterator[Batch]:
        self._at += 1
        if self._peek() == "}":
            return
        while True:
            if self._peek() != '"':
                raise self._broken("a key was expected")
            key = self._value(self._limits.event_bytes)
            if self._peek() != ":":
                raise self._broken("a colon was expected")
            self._at += 1
            if key == "traceEvents" and self._peek() == "[":
                yield from self._array()
            else:
                self._metadata_value(str(key)[:200])
            mark = self._peek()
            self._at += 1
            if mark == "}":
                return
            if mark != ",":
                raise self._broken("a comma was expected")

    def _metadata_value(self, key: str) -> None:
        opening = self._peek()
        if key not in self._keep and opening in '{["':
            self._skip()
            return
        try:
            value = self._value(_SMALL_VALUE)
        except TraceError as error:
            if error.code != "too_large" or opening not in '{["':
                raise
            self._skip()
            return
        if key in self._keep:
            self.metadata[key] = value

    # --- the event array -------------------------------------------------------------------

    def _array(self) -> Iterator[Batch]:
        self._at += 1
        refused = -1  # serial of the window in which a bulk attempt failed: do not try it again
        while True:
            mark = self._peek(at_end="")
            if mark == "]":
                self._at += 1
                return
            if mark == ",":
                self._at += 1
                continue
            if mark == "":
                if self.bare_list:  # Chrome's array format may lack the closing bracket
                    self.open_ended = True
                    return
                raise truncated("inside the event list")
            batch = self._bulk() if self._serial != refused else None
            if batch is None:
                refused = self._serial
                batch = [self._value(self._limits.event_bytes, remember=True)]
            yield batch

    def _bulk(self) -> Batch | None:
        end = len(self._text)
        for _ in range(_CUT_TRIES):
            cut = self._last_border(end)
            if cut < 0:
                break
            text = "[" + self._text[self._at : cut + 1] + "]"
            try:
                batch = self._loads(text)
            except ValueError:
                end = cut
                continue
            except RecursionError:
                raise _too_deep() from None
            self._at = cut + 1
            self._batch_text = text
            return batch if isinstance(batch, list) else None
        return None

    def _last_border(self, end: int) -> int:
        tries = 0
        while tries < 200:
            end = self._text.rfind("}", self._at, end)
            if end < 0:
                return -1
            if _BORDER.match(self._text, end):
                return end
            tries += 1
        return -1

    def _loads(self, text: str) -> Any:
        if self.float_parser is None:
            return json.loads(text)
        return json.loads(text, parse_float=self.float_parser)

    # --- single values and the window ------------------------------------------------------

    def _value(self, limit: int, *, remember: bool = False) -> Any:
        """Decode the value at the cursor, growing the window until it is complete."""
        self._peek()
        decoder = (
            json.JSONDecoder()
            if self.float_parser is None
            else json.JSONDecoder(parse_float=self.float_parser)
        )
        while True:
            try:
                self._complete_scalar(limit)
                value, end = decoder.raw_decode(self._text, self._at)
            except RecursionError:
                raise _too_deep() from None
            except ValueError as error:
                end, problem = -1, error
            if end >= 0:
                if remember:
                    self._batch_text = "[" + self._text[self._at : end] + "]"
                self._at = end
                return value
            size = len(self._text) - self._at
            if size > limit:
                raise over_limit(f"one value of more than {limit >> 20} MiB", f"{limit >> 20} MiB")
            if not self._more(max(size, 1)):
                if isinstance(problem, json.JSONDecodeError) and problem.pos < len(self._text) - 64:
                    raise self._broken(problem.msg)
                raise truncated("inside a value")

    def _complete_scalar(self, limit: int) -> None:
        """A number or a word that touches the end of the window may go on: read what follows it."""
        if self._text[self._at] in '{["':
            return
        while (token := _SCALAR.match(self._text, self._at)) and token.end() == len(self._text):
            if token.end() - self._at > limit:
                raise over_limit("a number of more than 8 MiB", "8 MiB")
            if not self._more(token.end() - self._at):
                return

    def _skip(self) -> None:
        """Step over a large object, list or string without building it."""
        depth = 0
        while True:
            token = _TOKEN.search(self._text, self._at)
            if token is None:
                self._at = len(self._text)
                if not self._fill():
                    raise truncated("inside a skipped value")
                continue
            mark = token.group()
            if mark == '"':  # opens here, closes beyond the window
                self._at = token.start()
                size = len(self._text) - self._at
                if size > self._limits.event_bytes:
                    raise over_limit("a string of more than 8 MiB", "8 MiB")
                if not self._more(size):
                    raise truncated("inside a string")
                continue
            self._at = token.end()
            depth += (mark in "{[") - (mark in "}]")
            if depth <= 0:
                return

    def _peek(self, at_end: str | None = None) -> str:
        """Next character that is not white space, without consuming it."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                if at_end is None:
                    raise truncated("before the closing bracket")
                return at_end

    def _more(self, size: int) -> bool:
        """Read at least `size` further characters; False when nothing came."""
        grown = 0
        while grown < size:
            before = len(self._text) - self._at
            if not self._fill():
                break
            grown += len(self._text) - self._at - before
        return grown > 0

    def _fill(self) -> bool:
        if self._ended:
            return False
        chunk = next(self._chunks, None)
        if chunk is None:
            self._ended = True
            return False
        self._text = self._text[self._at :] + chunk
        self._at = 0
        self._serial += 1
        return True

    def _broken(self, detail: str) -> TraceError:
        near = self._text[max(0, self._at - 20) : self._at + 20]
        return malformed(f"{detail} near {near!r}")


def _too_deep() -> TraceError:
    return malformed("its JSON is nested too deeply to be a profile")
