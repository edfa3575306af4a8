"""Report: a summary table and two charts of the clean orders."""

# matplotlib tells only a part of its types:
# pyright: reportUnknownMemberType=false

from collections import defaultdict
from datetime import date

from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from pydantic import BaseModel
from pyspark.sql import functions as F  # noqa: N812 - the name Spark's users know

from perago import (
    RetryPolicy,
    SparkWorkspace,
    TaskControls,
    TimeoutPolicy,
    WorkspaceSpec,
    require_file,
    require_table,
    task,
)

SUMMARY = "report/summary"
CHARTS = ("report/revenue.png", "report/products.png")


class Params(BaseModel):
    title: str = "Orders"


class Result(BaseModel):
    revenue: float
    charts: list[str]


@task(
    name="orders.report",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="/orders",
        pre=[require_table("clean/orders", min_rows=1)],
        post=[
            require_table(SUMMARY, min_rows=1, unique=[("day", "country", "product")], where=["orders > 0"]),
            *(require_file(chart) for chart in CHARTS),
        ],
    ),
    controls=TaskControls(
        retry=RetryPolicy(count=1, delay_seconds=1),
        timeout=TimeoutPolicy(policy="RETRY", response_seconds=60),
    ),
)
def report(workspace: SparkWorkspace, params: Params) -> Result:
    """Write report/summary and the charts."""
    summary = (
        workspace.read.parquet("clean/orders")
        .groupBy("day", "country", "product")
        .agg(F.count("*").alias("orders"), F.sum("amount").alias("revenue"))
    )
    workspace.write(summary.coalesce(1), SUMMARY, mode="overwrite")

    # Small now: what was added up fits in memory, and is drawn here.
    by_day_and_country: dict[str, dict[date, float]] = defaultdict(lambda: defaultdict(float))
    by_product: dict[str, float] = defaultdict(float)
    for row in workspace.read.parquet(SUMMARY).orderBy("day", "country", "product").collect():
        by_day_and_country[row["country"]][row["day"]] += float(row["revenue"])
        by_product[row["product"]] += float(row["revenue"])
    draw(workspace, CHARTS[0], days_chart(params.title, by_day_and_country))
    draw(workspace, CHARTS[1], products_chart(params.title, by_product))
    return Result(revenue=round(sum(by_product.values()), 2), charts=list(CHARTS))


def draw(workspace: SparkWorkspace, path: str, figure: Figure) -> None:
    with workspace.open(path, "wb") as file:  # it is in the workspace once the block has ended well
        figure.savefig(file, format="png")


def days_chart(title: str, revenue: dict[str, dict[date, float]]) -> Figure:
    """Revenue of each day, stacked by country."""
    figure = Figure(figsize=(9, 4.5), layout="constrained")  # not pyplot: a worker has no screen
    axes = figure.subplots()
    days = sorted({day for country in revenue.values() for day in country})
    below = [0.0] * len(days)
    for country, by_day in sorted(revenue.items()):
        heights = [by_day.get(day, 0.0) for day in days]
        axes.bar([f"{day:%a %d %b}" for day in days], heights, bottom=below, label=country)
        below = [under + height for under, height in zip(below, heights, strict=True)]
    axes.set_title(f"{title}: revenue by day and country")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f} €"))
    axes.legend(ncols=len(revenue), frameon=False)
    axes.margins(y=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def products_chart(title: str, revenue: dict[str, float]) -> Figure:
    """Revenue of each product, the largest first."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    products = sorted(revenue, key=lambda product: revenue[product])
    bars = axes.barh(products, [revenue[product] for product in products])
    axes.bar_label(bars, fmt="{:,.0f} €", padding=4)
    axes.set_title(f"{title}: revenue by product")
    axes.margins(x=0.15)
    axes.xaxis.set_visible(False)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    return figure
