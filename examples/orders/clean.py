"""Clean: the raw lines as a table with types, each order once, in Parquet partitioned by day.

A SparkWorkspace: nothing is downloaded. Spark reads and writes the attempt's own branch of the repository, and the
guardrails look at the table there, before anybody else can see it.
"""

from pydantic import BaseModel
from pyspark.sql import functions as F  # noqa: N812 - the name Spark's users know

from perago import (
    RetryPolicy,
    SparkWorkspace,
    TaskControls,
    TaskFailed,
    TimeoutPolicy,
    WorkspaceSpec,
    change_budget,
    require_glob,
    require_table,
    task,
)

RAW = "order_id string, customer string, country string, product string, quantity string, amount string"


class Params(BaseModel):
    expected_orders: int


class Result(BaseModel):
    orders: int


@task(
    name="orders.clean",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="/orders",
        # What the task relies on: a retry would find the same, so a failure here is final.
        pre=[require_glob("raw/*.csv")],
        # What the task promises to its readers.
        post=[
            require_table(
                "clean/orders",
                columns={
                    "order_id": "string",
                    "customer": "string",
                    "country": "string",
                    "product": "string",
                    "quantity": "int",
                    "amount": "decimal(10,2)",
                    "day": "date",
                },
                min_rows=1,
                not_null=["order_id", "country", "product", "quantity", "amount"],
                unique=["order_id"],
                where=["amount >= 0", "quantity BETWEEN 1 AND 100"],
            ),
            # Compared with the table as it was: half of it gone, or twice as much, is a mistake somewhere. Writing the
            # table anew replaces its files, fewer than half of the workspace's; more would be somebody else's.
            change_budget(max_deleted_fraction=0.5, rows=(0.5, 2.0), schema="compatible"),
        ],
    ),
    controls=TaskControls(
        retry=RetryPolicy(count=1, delay_seconds=1),
        timeout=TimeoutPolicy(policy="RETRY", response_seconds=60),
    ),
)
def clean(workspace: SparkWorkspace, params: Params) -> Result:
    """Write the table clean/orders."""
    raw = workspace.read.schema(RAW).csv("raw", header=True)
    orders = (
        raw.select(
            "order_id",
            "customer",  # null where none is named
            "country",
            "product",
            F.col("quantity").cast("int").alias("quantity"),
            F.regexp_replace("amount", "^EUR ", "").cast("decimal(10,2)").alias("amount"),
            F.substring("order_id", 1, 10).cast("date").alias("day"),
        )
        # A line delivered twice is one order; two that differ under one id are left for the guardrail to find.
        # One shuffle serves both steps: a day's lines meet in one place, and each day becomes one file.
        .repartition("day")
        .distinct()
    )
    workspace.write(orders, "clean/orders", mode="overwrite", partition_by=["day"])
    count = workspace.read.parquet("clean/orders").count()
    if count != params.expected_orders:
        raise TaskFailed(f"{params.expected_orders} orders were delivered, {count} are left after cleaning")
    return Result(orders=count)
