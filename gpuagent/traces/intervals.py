"""Exact algebra on sets of half-open time intervals: union, length, complement, difference, cuts.

An interval set is a pair of int64 arrays (starts, ends) that is sorted, disjoint and non-touching;
`union` makes one from anything. All functions are exact in nanoseconds and O(n log n) at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
Spans = tuple[I64, I64]

EMPTY: Spans = (np.empty(0, np.int64), np.empty(0, np.int64))


def union(starts: I64, ends: I64, *, is_sorted: bool = False) -> Spans:
    """Disjoint sorted spans that cover the same time; empty and negative intervals vanish."""
    keep = ends > starts
    if not keep.all():
        starts, ends = starts[keep], ends[keep]
    if not len(starts):
        return EMPTY
    if not is_sorted:
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    opens = np.empty(len(starts), bool)
    opens[0] = True
    np.greater(starts[1:], reach[:-1], out=opens[1:])
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(starts)) - 1
    return starts[first], reach[last]


def length(spans: Spans) -> int:
    """Total covered time in nanoseconds."""
    return int((spans[1] - spans[0]).sum()) if len(spans[0]) else 0


def complement(spans: Spans, start: int, end: int) -> Spans:
    """The gaps between the spans inside [start, end)."""
    inside = clip(spans, start, end)
    if not len(inside[0]):
        if end > start:
            return np.array([start], np.int64), np.array([end], np.int64)
        return EMPTY
    opens = np.concatenate(([start], inside[1]))
    closes = np.concatenate((inside[0], [end]))
    keep = closes > opens
    return opens[keep], closes[keep]


def clip(spans: Spans, start: int, end: int) -> Spans:
    """The part of the spans inside [start, end)."""
    opens, closes = np.maximum(spans[0], start), np.minimum(spans[1], end)
    keep = closes > opens
    return opens[keep], closes[keep]


def covered_before(spans: Spans, times: I64) -> I64:
    """Covered time before each of `times`, shape [len(times)]: the key to every overlap below."""
    starts, ends = spans
    if not len(starts):
        return np.zeros(len(times), np.int64)
    total = np.concatenate(([0], np.cumsum(ends - starts)))
    at = np.searchsorted(starts, times, side="right")
    before = total[np.maximum(at - 1, 0)]
    partly = np.clip(times - starts[np.maximum(at - 1, 0)], 0, None)
    last = np.minimum(partly, (ends - starts)[np.maximum(at - 1, 0)])
    return np.where(at > 0, before + last, 0)


def overlap_each(spans: Spans, starts: I64, ends: I64) -> I64:
    """Time that each interval [starts, ends) shares with the spans, shape [n]."""
    return covered_before(spans, ends) - covered_before(spans, starts)


def intersection_length(one: Spans, other: Spans) -> int:
    """Time that two sets share."""
    if len(one[0]) > len(other[0]):
        one, other = other, one
    return int(overlap_each(other, one[0], one[1]).sum()) if len(one[0]) else 0


def difference_length(one: Spans, other: Spans) -> int:
    """Time in `one` that is not in `other`: how much of it is exposed."""
    return length(one) - intersection_length(one, other)


def contains(spans: Spans, times: I64) -> NDArray[np.bool_]:
    """Whether each time lies inside a span."""
    if not len(spans[0]):
        return np.zeros(len(times), bool)
    at = np.searchsorted(spans[0], times, side="right") - 1
    inside: NDArray[np.bool_] = (at >= 0) & (times < spans[1][np.maximum(at, 0)])
    return inside


def rows_by_value(values: NDArray[np.integer[Any]]) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Each distinct value with the ascending rows that hold it, in O(n log n)."""
    if not len(values):
        return
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    borders = np.flatnonzero(np.diff(ordered)) + 1
    for rows in np.split(order, borders):
        yield int(values[rows[0]]), rows
