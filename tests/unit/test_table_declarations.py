from datetime import date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from perago import TaskDefinitionError, WorkspaceSpec, change_budget, require_table
from perago.authoring.column_types import named_types, spark_type
from perago.authoring.tables import RequireTable

ACCEPTED = (
    "use boolean, tinyint, smallint, int, bigint, float, double, decimal, string, binary, date, timestamp,"
    " timestamp_ntz, variant, decimal(p,s), array<…>, map<…,…> or struct<name:…>"
)
PAIR = "freshness takes a column and an age: write freshness=('updated_at', timedelta(days=1))"


def declared(**rules: Any) -> RequireTable:
    rule = require_table("t", **rules)
    assert isinstance(rule, RequireTable)
    return rule


def test_a_table_is_shown_as_the_call_that_made_it() -> None:
    rule = declared(
        format="csv",
        columns={"id": "long"},
        min_rows=0,
        not_null=["id"],
        unique=[("a", "b"), "c"],
        where=["a > 0"],
        freshness=("at", timedelta(days=1)),
        mask=["a"],
    )

    assert str(rule) == (
        "require_table('t', format='csv', columns={'id': 'bigint'}, min_rows=0, not_null=['id'],"
        " unique=[('a', 'b'), 'c'], where=['a > 0'], freshness=('at', datetime.timedelta(days=1)), mask=['a'])"
    )
    assert str(declared(schema="id int")) == "require_table('t', schema='id int')"
    assert str(require_table("t")) == "require_table('t')"


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("BIGINT", "bigint"),
        (" long ", "bigint"),
        ("Integer", "int"),
        ("decimal", "decimal(10,0)"),
        ("numeric( 12 , 3 )", "decimal(12,3)"),
        ("array<array<short>>", "array<array<smallint>>"),
        ("map<string, struct<A: int, b decimal(5,2)>>", "map<string,struct<A:int,b:decimal(5,2)>>"),
    ],
)
def test_a_type_is_kept_as_spark_spells_it(written: str, kept: str) -> None:
    assert spark_type(written) == kept


def test_a_ddl_text_names_exactly_its_columns() -> None:
    rule = declared(schema="id bigint NOT NULL, `odd, name` map<string,int>, s struct<x:int,y:int>")

    assert rule.typed_columns == (("id", "bigint"), ("odd, name", "map<string,int>"), ("s", "struct<x:int,y:int>"))
    assert rule.filled_columns == ("id",)
    assert not rule.allows_other_columns
    assert declared(columns={"id": "int"}).allows_other_columns
    assert named_types("a int") == [("a", "int", False)]


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        (
            {"format": "xlsx"},
            "format 'xlsx' is not known: use one of parquet, csv, json, orc, text, avro, delta",
        ),
        ({"columns": {"a": "int"}, "schema": "a int"}, "columns and schema both name the columns: give one of them"),
        ({"columns": ["id"]}, "columns maps names to types: write columns={'id': 'bigint'}"),
        ({"columns": {}}, "columns names no column: drop it or name one"),
        ({"columns": {"id": "bigintt"}}, f"columns: 'bigintt' is no Spark SQL type of a table's files: {ACCEPTED}"),
        (
            {"columns": {"v": "char(3)"}},
            f"columns: 'char(3)' is no Spark SQL type of a table's files: {ACCEPTED}",
        ),
        (
            {"columns": {"d": "decimal(40,2)"}},
            "columns: 'decimal(40,2)' is no decimal type: write it like decimal(10,2), of 38 digits at most",
        ),
        ({"columns": {" ": "int"}}, "columns: ' ' is no text that names or says something"),
        ({"schema": "id"}, "schema 'id': column 'id' has no type: write it like 'id bigint'"),
        ({"schema": ""}, "schema '': '' is no column: write it like 'id bigint'"),
        ({"schema": "a int, a int"}, "schema 'a int, a int': column a is there twice"),
        (
            {"schema": 7},
            "schema takes a DDL text like 'id bigint, amount double' or a pandera model, got 7",
        ),
        ({"not_null": "id"}, "not_null takes a list: write not_null=['id']"),
        ({"where": "id > 0"}, "where takes a list: write where=['id > 0']"),
        ({"mask": "id"}, "mask takes a list: write mask=['id']"),
        ({"where": [""]}, "where: '' is no text that names or says something"),
        ({"not_null": [1]}, "not_null: 1 is no text that names or says something"),
        ({"unique": [()]}, "unique: a compound key names columns, each once, got ()"),
        ({"unique": [("a", "a")]}, "unique: a compound key names columns, each once, got ('a', 'a')"),
        ({"unique": [""]}, "unique: '' is no text that names or says something"),
        ({"freshness": "updated_at"}, PAIR),
        ({"freshness": ("updated_at", 60)}, PAIR),
        ({"freshness": ("at", timedelta(0))}, "freshness needs an age above zero, got 0:00:00"),
    ],
    ids=str,
)
def test_a_table_that_cannot_be_checked_is_refused_with_the_fix(rules: Any, problem: str) -> None:
    with pytest.raises(TaskDefinitionError) as refusal:
        require_table("t", **rules)

    assert str(refusal.value) == f"require_table('t'): {problem}"


def check(name: str, statistics: dict[str, Any] | None = None, **other: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"name": name, "statistics": statistics, "ignore_na": True, **other})


def column(dtype: Any, *checks: SimpleNamespace, **other: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"dtype": dtype, "nullable": False, "unique": False, "checks": checks, **other})


def model(columns: dict[str, SimpleNamespace], **other: Any) -> Any:
    schema = SimpleNamespace(**{"columns": columns, "checks": [], "strict": False, "unique": None, **other})
    return type("Orders", (), {"to_schema": staticmethod(lambda: schema)})


def test_a_model_stands_for_rules_of_ours() -> None:
    spark_long = SimpleNamespace(type=SimpleNamespace(simpleString=lambda: "bigint"))
    columns = {
        "id": column(spark_long, check("greater_than_or_equal_to", {"min_value": 0}), unique=True),
        "amount": column("float64", check("less_than", {"max_value": 5.5}), nullable=True),
        "odd name": column("str", check("isin", {"allowed_values": ["a", "b'c\\"]})),
    }

    rule = declared(schema=model(columns, strict=True, unique=["id", "amount"]))

    assert str(rule) == "require_table('t', schema=Orders)"
    assert rule.typed_columns == (("id", "bigint"), ("amount", "double"), ("odd name", "string"))
    assert (rule.filled_columns, rule.keys) == (("id", "odd name"), (("id",), ("id", "amount")))
    assert not rule.allows_other_columns
    assert rule.conditions == (
        "id >= 0",
        "amount IS NULL OR isnan(amount) OR amount < 5.5",
        "`odd name` IN ('a', 'b\\'c\\\\')",
    )


def test_a_check_that_minds_missing_values_does_not_take_nan_for_a_large_number() -> None:
    positive = check("greater_than", {"min_value": 0}, ignore_na=False)
    rule = declared(schema=model({"x": column("float64", positive, nullable=True)}))

    assert rule.conditions == ("NOT isnan(x) AND x > 0",)


@pytest.mark.parametrize(
    ("name", "statistics", "condition"),
    [
        ("equal_to", {"value": True}, "x = TRUE"),
        ("not_equal_to", {"value": date(2026, 1, 2)}, "x != DATE '2026-01-02'"),
        ("greater_than", {"min_value": datetime(2026, 1, 2, 3)}, "x > TIMESTAMP '2026-01-02 03:00:00'"),
        ("less_than_or_equal_to", {"max_value": 3}, "x <= 3"),
        ("in_range", {"min_value": 1, "max_value": 2, "include_max": False}, "(x >= 1 AND x < 2)"),
        ("notin", {"forbidden_values": [1, 2]}, "x NOT IN (1, 2)"),
        ("str_matches", {"pattern": r"a|\d"}, r"x RLIKE '^(?:a|\\d)'"),
        ("str_contains", {"pattern": "b"}, "x RLIKE 'b'"),
        ("str_startswith", {"string": "a"}, "startswith(x, 'a')"),
        ("str_endswith", {"string": "a"}, "endswith(x, 'a')"),
        ("str_length", {"min_value": 1, "max_value": 3}, "(length(x) >= 1 AND length(x) <= 3)"),
    ],
)
def test_each_known_check_becomes_a_condition(name: str, statistics: dict[str, Any], condition: str) -> None:
    rule = declared(schema=model({"x": column("str", check(name, statistics))}))

    assert rule.conditions == (condition,)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (
            model({"x": column("str", check("my_check"))}),
            "the check my_check of column x cannot be translated: write it as where=[…]",
        ),
        (
            model({"x": column("str", check("greater_than", {"min_value": object}))}),
            "the check greater_than of column x cannot be translated (<class 'object'> has no SQL literal):"
            " write it as where=[…]",
        ),
        (
            model({"x": column("str", check("str_matches", {"pattern": "(?P<a>b)"}))}),
            "the check str_matches of column x cannot be translated (Spark's patterns know no (?P…)):"
            " write it as where=[…]",
        ),
        (
            model({"x": column("str", check("equal_to", {"value": 1}, raise_warning=True))}),
            "the check equal_to of column x only warns, which a guardrail cannot: drop it or let it fail",
        ),
        (
            model({"x": column("str")}, checks=[check("whole")]),
            "the check whole on the whole table cannot be translated: write it as where=[…]",
        ),
        (model({"x": column("str")}, strict="filter"), "strict='filter' cannot be translated: use True or False"),
        (
            model({"x": column("str")}, index=object()),
            "an index cannot be translated, a Spark table has none: make it a column",
        ),
        (model({"x": column("str")}, ordered=True), "ordered cannot be translated: drop it"),
        (
            model({"x": column("str", regex=True)}),
            "column x is a regex, which cannot be translated: name each column",
        ),
        (
            model({"x": column("str", required=False)}),
            "column x is optional, which cannot be translated: drop it or require it",
        ),
        (
            model({"x": column("category")}),
            "dtype category of column x cannot be translated: use require_table's columns",
        ),
        (model({"x": column(None)}), "column x has no dtype: give it one"),
        (model({}), "it has no columns"),
    ],
)
def test_what_a_model_demands_beyond_our_rules_is_refused_by_name(schema: Any, problem: str) -> None:
    with pytest.raises(TaskDefinitionError) as refusal:
        require_table("t", schema=schema)

    assert str(refusal.value) == f"require_table('t'): schema Orders: {problem}"


@pytest.mark.parametrize("rows", [(1,), (0.5, 1, 2), (-1, 2), 3])
def test_a_budget_of_rows_is_a_band(rows: Any) -> None:
    with pytest.raises(TaskDefinitionError) as refusal:
        change_budget(rows=rows)

    assert str(refusal.value) == f"change_budget: rows must be a band like (0.9, 1.5), got {rows}"


def test_a_budget_knows_two_ways_a_schema_may_move() -> None:
    wrong: Any = "same"
    with pytest.raises(TaskDefinitionError) as refusal:
        change_budget(schema=wrong)

    assert str(refusal.value) == "change_budget: schema must be 'compatible' or 'equal', got 'same'"


@pytest.mark.parametrize("limits", [{"rows": (0.9, 1.5)}, {"schema": "equal"}])
def test_a_budget_that_compares_tables_needs_one_in_post(limits: Any) -> None:
    budget = change_budget(**limits)
    with pytest.raises(ValidationError) as refusal:
        WorkspaceSpec(pre=[require_table("t")], post=[budget])

    assert refusal.value.errors()[0]["msg"] == (
        f"Value error, {budget} compares the tables that post requires, and it requires none:"
        " add require_table(path) to post"
    )
    assert WorkspaceSpec(post=[budget, require_table("t")]).post == (budget, require_table("t"))


def test_a_budget_of_objects_needs_no_table() -> None:
    budget = change_budget(max_deleted_fraction=0.1, max_changed_objects=5)

    assert WorkspaceSpec(post=[budget]).post == (budget,)
