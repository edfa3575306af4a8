"""The local engine: in order, never many at once, and the first error ends it."""

import threading
from collections.abc import Generator, Iterator
from itertools import islice
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perago.data.engine import ordered_map, partitioned

WAIT = 10.0


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(), max_size=40), st.integers(1, 5))
def test_results_come_in_the_order_of_their_partitions(numbers: list[int], threads: int) -> None:
    assert list(ordered_map(str, numbers, threads)) == [str(number) for number in numbers]


def test_a_slow_first_partition_is_not_overtaken() -> None:
    last_is_done = threading.Event()

    def work(number: int) -> int:
        if number == 0:
            assert last_is_done.wait(WAIT)
        if number == 2:
            last_is_done.set()
        return number

    assert list(ordered_map(work, range(3), threads=2)) == [0, 1, 2]


def test_the_source_is_read_only_as_far_as_results_are_taken() -> None:
    read: list[int] = []

    def source() -> Iterator[int]:
        for number in range(1000):
            read.append(number)
            yield number

    results = cast("Generator[str]", ordered_map(str, source(), threads=3))
    assert list(islice(results, 4)) == ["0", "1", "2", "3"]
    results.close()

    assert len(read) == 4 + 2 * 3 - 1


def test_no_more_partitions_are_under_way_than_threads() -> None:
    under_way = 0
    most = 0
    lock = threading.Lock()
    full = threading.Barrier(3)

    def work(_: int) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        full.wait(WAIT)
        with lock:
            under_way -= 1

    assert len(list(ordered_map(work, range(12), threads=3))) == 12
    assert most == 3


def test_the_first_error_stops_what_has_not_begun_and_awaits_what_has() -> None:
    begun: list[int] = []
    ended: list[int] = []
    failed = threading.Event()

    def work(number: int) -> None:
        begun.append(number)
        if number == 0:
            failed.set()
            raise ValueError("the first")
        assert failed.wait(WAIT)
        ended.append(number)

    with pytest.raises(ValueError, match="the first"):
        list(ordered_map(work, range(1000), threads=2))

    assert len(begun) <= 2 * 2 + 1
    assert sorted(ended) == sorted(begun)[1:]


def test_of_two_errors_the_earlier_partition_is_told() -> None:
    second_failed = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            assert second_failed.wait(WAIT)
            raise ValueError("earlier")
        second_failed.set()
        raise ValueError("later")

    with pytest.raises(ValueError, match="earlier"):
        list(ordered_map(work, range(2), threads=2))


def test_an_error_of_the_source_ends_it_too() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError("the source")

    with pytest.raises(ValueError, match="the source"):
        list(ordered_map(str, source(), threads=2))


@given(st.lists(st.integers(0, 20), max_size=40), st.integers(1, 5), st.integers(1, 30), st.integers(0, 4))
def test_partitions_keep_order_and_are_bounded_by_number_and_bytes(
    sizes: list[int], most_items: int, most_bytes: int, lanes: int
) -> None:
    partitions = list(partitioned(sizes, lambda size: size, most_items, most_bytes, lanes))

    assert [size for partition in partitions for size in partition] == sizes
    assert all(0 < len(partition) <= most_items for partition in partitions)
    assert all(sum(partition) <= most_bytes or len(partition) == 1 for partition in partitions)


def test_an_item_larger_than_the_bound_stands_alone() -> None:
    assert list(partitioned([1, 99, 1, 1], lambda size: size, 10, 10)) == [[1], [99], [1, 1]]


def test_partitions_are_as_large_as_the_bounds_allow() -> None:
    assert list(partitioned([5, 5, 5, 1, 1, 1, 1], lambda size: size, 3, 10)) == [[5, 5], [5, 1, 1], [1, 1]]


def test_few_items_are_spread_over_all_lanes_and_many_cost_few_partitions() -> None:
    def lengths(items: int) -> list[int]:
        return [len(partition) for partition in partitioned(range(items), lambda _: 0, 3, 1, lanes=4)]

    assert lengths(4) == [1, 1, 1, 1]
    assert lengths(14) == [1, 1, 1, 1, 2, 2, 2, 2, 2]
    assert lengths(22) == [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 1]
