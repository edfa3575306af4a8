"""The local engine: a plan's partitions over threads, in order and never many at once."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Partition = TypeVar("Partition")
Done = TypeVar("Done")
Item = TypeVar("Item")


def ordered_map(work: Callable[[Partition], Done], partitions: Iterable[Partition], threads: int) -> Iterator[Done]:
    """Run `work` over partitions; results come in order, and the source is read only as far as needed.

    The first error ends it: nothing more is started, and what runs has ended before the error is raised.
    """
    waiting: deque[Future[Done]] = deque()
    source = iter(partitions)
    with ThreadPoolExecutor(threads, thread_name_prefix="perago-data") as pool:
        try:
            for partition in source:
                waiting.append(pool.submit(work, partition))
                if len(waiting) >= threads * 2:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def partitioned(
    items: Iterable[Item], size_of: Callable[[Item], int], max_items: int, max_bytes: int
) -> Iterator[list[Item]]:
    """Cut a stream of items into lists bounded by number and bytes."""
    partition: list[Item] = []
    total = 0
    for item in items:
        if partition and (len(partition) >= max_items or total + size_of(item) > max_bytes):
            yield partition
            partition, total = [], 0
        partition.append(item)
        total += size_of(item)
    if partition:
        yield partition
