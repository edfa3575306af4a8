"""Whether a key is unique, found as cheaply as its values allow.

Measured on 5 M rows on lakeFS, beside a scan of all columns: counting distinct values inside the other rules' aggregate
takes three to four scans; grouping 64-bit hashes in a job of its own one and a half; marking whole numbers that lie
close together in bitmaps two thirds of one, because only the bitmaps are shuffled; bringing the hashes here and sorting
them about half of one. So as many hashes as may be held here are sorted here; of larger tables numbers without wide
gaps are marked, and the hashes of other keys grouped on the server. Only when values may repeat are the keys themselves
compared.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from perago.authoring.tables import Key
from perago.data.table_columns import column, column_type
from perago.data.table_reading import OpenTable, spark_functions
from perago.data.table_samples import Samples

_MOST_FETCHED = 8_000_000  # hashes: 64 MB, held twice while they are sorted
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_HASHES_A_BATCH = 300_000  # 2.4 MB; by default 10,000 come at a time, which took as long or up to 40 % longer
_ROWS_PER_TASK = 300_000
_MOST_TASKS = 2000
_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
_WIDEST_GAPS = 16  # numbers a row: two bytes of bitmap


class KeyCheck:
    """One key of a table. `measures` are to be taken in the same pass as the other rules'."""

    def __init__(self, table: OpenTable, key: Key) -> None:
        functions = spark_functions()
        self._rows = table.rows
        self._key = key
        self._columns = [column(table.schema, name) for name in key]
        self.measures: list[Any] = []
        kinds = [column_type(table.schema, name).simpleString() for name in key]
        if len(kinds) == 1 and kinds[0] in _WHOLE_NUMBERS:
            number = self._columns[0]
            self.measures = [functions.count(number), functions.min(number), functions.max(number)]

    def problems(self, rows: int, measured: Sequence[Any], samples: Samples) -> Iterator[str]:
        """What is wrong, given the table's rows and what was measured."""
        if not self._may_repeat(rows, measured):
            return
        names = [f"k{index}" for index in range(len(self._key))]
        named = [value.alias(name) for value, name in zip(self._columns, names, strict=True)]
        repeated = self._rows.select(*named).groupBy(*names).count().where("count > 1")
        total = repeated.count()
        if total:
            shown = self._key[0] if len(self._key) == 1 else f"({', '.join(self._key)})"
            keys = "1 key" if total == 1 else f"{total} keys"
            yield f"{shown} is not unique: {keys} repeated{samples.of_keys(self._key, repeated)}"

    def _may_repeat(self, rows: int, measured: Sequence[Any]) -> bool:
        if rows < 2:
            return False
        if rows <= _MOST_FETCHED:
            return self._hashes_repeat_here()
        if not measured:
            return self._hashes_repeat_on_the_server(rows)
        filled, lowest, highest = measured
        if rows - filled > 1:
            return True  # NULL is a value like any other, and there are two
        if not filled:
            return False
        if highest - lowest >= _WIDEST_GAPS * rows:
            return self._hashes_repeat_on_the_server(rows)
        return self._marked(lowest) < filled

    def _marked(self, lowest: int) -> int:
        """How many different numbers there are."""
        functions = spark_functions()
        number = self._columns[0].cast("bigint") - functions.lit(lowest).cast("bigint")
        marks = functions.bitmap_construct_agg(functions.bitmap_bit_position(number))
        bitmaps = self._rows.groupBy(functions.bitmap_bucket_number(number)).agg(marks.alias("marks"))
        return bitmaps.agg(functions.sum(functions.bitmap_count("marks"))).collect()[0][0] or 0

    def _hashed(self) -> Any:
        """Equal keys have equal hashes, so when no hash is there twice no key is."""
        functions = spark_functions()
        # A hash skips NULLs, so (NULL, 1) and (1, NULL) would be one without saying where they are.
        nulls = [value.isNull() for value in self._columns] if len(self._columns) > 1 else []
        return self._rows.select(functions.xxhash64(*self._columns, *nulls).alias("hash"))

    def _hashes_repeat_here(self) -> bool:
        import numpy  # comes with pyspark, which not every task needs

        with _large_batches(self._rows.sparkSession):
            chunks = self._hashed().toArrow().column("hash").chunks
        values = numpy.concatenate([chunk.to_numpy() for chunk in chunks])  # a copy: Arrow's own must not be sorted
        values.sort()
        return bool((values[1:] == values[:-1]).any())

    def _hashes_repeat_on_the_server(self, rows: int) -> bool:
        functions = spark_functions()
        tasks = min(rows // _ROWS_PER_TASK + 1, _MOST_TASKS)
        # Shuffled first: grouping before the shuffle, Spark's way, is wasted on values that hardly repeat.
        shuffled = self._hashed().repartition(tasks, "hash")
        times = shuffled.groupBy("hash").agg(functions.count(functions.lit(1)).alias("times"))
        return bool(times.agg(functions.count_if(functions.col("times") > 1)).collect()[0][0])


@contextmanager
def _large_batches(spark: Any) -> Generator[None]:
    before = spark.conf.get(_BATCH_ROWS)
    spark.conf.set(_BATCH_ROWS, _HASHES_A_BATCH)
    try:
        yield
    finally:
        spark.conf.set(_BATCH_ROWS, before)
