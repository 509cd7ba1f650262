"""Interval algebra against a brute-force count of nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuagent.traces import intervals

SPAN = st.tuples(st.integers(0, 120), st.integers(0, 30)).map(lambda t: (t[0], t[0] + t[1]))
SPANS = st.lists(SPAN, max_size=12)


def arrays(spans: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(spans or np.empty((0, 2)), np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def covered(spans: list[tuple[int, int]]) -> set[int]:
    return {tick for start, end in spans for tick in range(start, end)}


@settings(max_examples=200, deadline=None)
@given(SPANS)
def test_union_covers_exactly_the_same_time_with_disjoint_sorted_spans(
    spans: list[tuple[int, int]],
) -> None:
    starts, ends = intervals.union(*arrays(spans))
    assert covered(list(zip(starts.tolist(), ends.tolist(), strict=True))) == covered(spans)
    assert (starts[1:] > ends[:-1]).all()
    assert intervals.length((starts, ends)) == len(covered(spans))


@settings(max_examples=200, deadline=None)
@given(SPANS, SPANS)
def test_intersection_and_difference_count_every_tick(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    a, b = intervals.union(*arrays(one)), intervals.union(*arrays(other))
    assert intervals.intersection_length(a, b) == len(covered(one) & covered(other))
    assert intervals.difference_length(a, b) == len(covered(one) - covered(other))


@settings(max_examples=200, deadline=None)
@given(SPANS, st.integers(0, 60), st.integers(0, 90))
def test_gaps_and_spans_tile_the_window(
    spans: list[tuple[int, int]], start: int, width: int
) -> None:
    union = intervals.union(*arrays(spans))
    end = start + width
    inside = intervals.clip(union, start, end)
    gaps = intervals.complement(union, start, end)
    assert intervals.length(inside) + intervals.length(gaps) == width
    assert intervals.intersection_length(inside, gaps) == 0


@settings(max_examples=200, deadline=None)
@given(SPANS, st.lists(SPAN, min_size=1, max_size=6))
def test_overlap_of_each_interval_is_exact(
    spans: list[tuple[int, int]], probes: list[tuple[int, int]]
) -> None:
    union = intervals.union(*arrays(spans))
    found = intervals.overlap_each(union, *arrays(probes))
    expected = [len(covered(spans) & covered([probe])) for probe in probes]
    assert found.tolist() == expected


@settings(max_examples=100, deadline=None)
@given(SPANS, st.lists(st.integers(0, 160), max_size=10))
def test_contains_tells_whether_a_time_is_covered(
    spans: list[tuple[int, int]], times: list[int]
) -> None:
    union = intervals.union(*arrays(spans))
    found = intervals.contains(union, np.array(times, np.int64))
    assert found.tolist() == [time in covered(spans) for time in times]


def test_rows_by_value_returns_each_value_with_its_rows_in_order() -> None:
    values = np.array([3, 1, 3, 2, 1], np.int32)
    found = {value: rows.tolist() for value, rows in intervals.rows_by_value(values)}
    assert found == {1: [1, 4], 2: [3], 3: [0, 2]}
    assert list(intervals.rows_by_value(np.empty(0, np.int32))) == []
