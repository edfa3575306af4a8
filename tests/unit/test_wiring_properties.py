"""Wiring is checked on the tasks' schemas: what an attempt can take or give must never be called a problem."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perago.authoring.payload import output_schema
from perago.authoring.wiring import wiring_problems
from perago.authoring.wiring_schema import Schema, Step, look_up
from tests.unit.cases import Case, accepted_by_the_schema, checked, near_misses, sent, valid_cases
from tests.unit.shapes import RECURSIVE, SHAPES, Counted, models
from tests.unit.wiring import simple, workflow

MODELS = models(SHAPES) | st.sampled_from(RECURSIVE)


def problems_of(case: Case, *params: Any) -> list[str]:
    """Of tasks in a row, each given its params."""
    name = case.definition.name
    tasks = [simple(f"task_{place}", name, params=given) for place, given in enumerate(params)]
    return wiring_problems(workflow(*tasks), [case.definition])


def escaped(value: Any) -> Any:
    """Texts that are not taken for expressions."""
    if isinstance(value, dict):
        return {key: escaped(part) for key, part in value.items()}
    if isinstance(value, list):
        return [escaped(part) for part in value]
    return value.replace("${", "$${") if isinstance(value, str) else value


def paths(value: Any, path: tuple[Step, ...] = ()) -> Iterator[tuple[Step, ...]]:
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in parts:
        yield from paths(part, (*path, step))


@checked
@given(valid_cases(models(SHAPES, base=Counted) | st.sampled_from(RECURSIVE)))
def test_every_path_of_an_output_is_found(case: Case) -> None:
    schema = Schema.of_root(output_schema(case.definition))

    for path in paths(sent(case)):
        assert isinstance(look_up(schema, path), Schema)


@checked
@given(valid_cases(MODELS))
def test_a_literal_that_the_task_accepts_is_no_problem(case: Case) -> None:
    assert problems_of(case, escaped(case.value)) == []


@checked
@given(near_misses(MODELS))
def test_a_literal_that_is_a_problem_is_refused_by_the_schema(case: Case) -> None:
    if problems_of(case, escaped(case.value)):
        assert not accepted_by_the_schema(case)


@checked
@given(valid_cases(MODELS))
def test_the_params_of_a_task_may_be_handed_on_to_the_same_task(case: Case) -> None:
    assert problems_of(case, escaped(case.value), "${task_0.input.params}") == []
