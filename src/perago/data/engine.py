"""What an engine is, and the local one: a plan's partitions over threads, in order and never many at once."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as ended
from pathlib import Path
from typing import Protocol, TypeVar

Partition = TypeVar("Partition")
Done = TypeVar("Done")
Item = TypeVar("Item")


class Engine(Protocol):
    """Runs `work` over partitions with the contract of `ordered_map`; `scratch` is for what it needs to write down."""

    def __call__(
        self, work: Callable[[list[Item]], Done], partitions: Iterable[list[Item]], threads: int, scratch: Path
    ) -> Generator[Done]: ...


def local_engine(
    work: Callable[[list[Item]], Done], partitions: Iterable[list[Item]], threads: int, scratch: Path
) -> Generator[Done]:
    """Over threads of this process."""
    yield from ordered_map(work, partitions, threads)


def ordered_map(work: Callable[[Partition], Done], partitions: Iterable[Partition], threads: int) -> Iterator[Done]:
    """Run `work` over partitions; results come in order, and the source is read only as far as needed.

    The first error ends it: nothing more is started, and what runs has ended before the error is raised.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="perago-data") as pool:
        yield from mapped_on(pool, work, partitions, threads)


def mapped_on(
    pool: ThreadPoolExecutor, work: Callable[[Partition], Done], partitions: Iterable[Partition], threads: int
) -> Generator[Done]:
    """`ordered_map` on threads that live longer, and keep their connections."""
    waiting: deque[Future[Done]] = deque()
    try:
        for partition in partitions:
            waiting.append(pool.submit(work, partition))
            if len(waiting) >= threads * 2:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        ended(waiting)


def partitioned(
    items: Iterable[Item], size_of: Callable[[Item], int], max_items: int, max_bytes: int, lanes: int = 0
) -> Iterator[list[Item]]:
    """Cut a stream of items into lists bounded by number and bytes.

    With `lanes`, how many lists are worked on at once, the first lists are short and later ones longer: few items are
    spread over all lanes, and many cost few lists.
    """
    partition: list[Item] = []
    total = made = 0
    longest = 1 if lanes else max_items
    for item in items:
        if partition and (len(partition) >= longest or total + size_of(item) > max_bytes):
            yield partition
            partition, total, made = [], 0, made + 1
            longest = min(max_items, 1 + made // lanes) if lanes else max_items
        partition.append(item)
        total += size_of(item)
    if partition:
        yield partition
