"""Summarise: revenue by country and product, from the files that `ingest` wrote."""

import csv
from collections import defaultdict
from pathlib import Path

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, WorkspaceSpec, require_file, require_glob, task


class Params(BaseModel):
    expected_rows: int


class Result(BaseModel):
    row_count: int
    revenue: float


@task(
    name="orders.summarise",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="/orders",
        pre=[require_glob("raw/*.csv")],
        post=[require_file("summary/revenue.csv")],
    ),
    controls=TaskControls(retry=RetryPolicy(count=3, delay_seconds=1)),
)
def summarise(workspace: Path, params: Params) -> Result:
    """Add up the orders by country and product."""
    revenue: dict[tuple[str, str], float] = defaultdict(float)
    rows = 0
    for file in sorted((workspace / "raw").glob("*.csv")):
        with file.open(newline="") as opened:
            for order in csv.DictReader(opened):
                revenue[order["country"], order["product"]] += float(order["amount"])
                rows += 1
    if rows < params.expected_rows:
        raise ValueError(f"only {rows} of {params.expected_rows} orders are in the workspace")
    write_summary(workspace / "summary" / "revenue.csv", revenue)
    return Result(row_count=rows, revenue=round(sum(revenue.values()), 2))


def write_summary(file: Path, revenue: dict[tuple[str, str], float]) -> None:
    file.parent.mkdir(exist_ok=True)
    with file.open("w", newline="") as opened:
        table = csv.writer(opened)
        table.writerow(("country", "product", "revenue"))
        for (country, product), amount in sorted(revenue.items()):
            table.writerow((country, product, round(amount, 2)))
