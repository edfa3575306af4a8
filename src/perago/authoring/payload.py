"""What Conductor hands to a task and what it gets back, validated against the task's models."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import CoreConfig, SchemaSerializer

from perago.authoring.errors import TaskExecutionError, TaskInputError
from perago.authoring.schema import model_schema
from perago.authoring.task import TaskDefinition
from perago.authoring.validation import describe
from perago.authoring.workspace import WorkspaceInput, WorkspaceOutput

Model = TypeVar("Model", bound=BaseModel)

# Conductor moves larger outputs elsewhere, and turns those over 10 MB into a terminal failure while answering 200.
_OUTPUT_BYTES = 3_000_000


@dataclass(frozen=True)
class TaskInput:
    workspace: WorkspaceInput | None
    params: BaseModel


def input_keys(definition: TaskDefinition) -> list[str]:
    return ["params"] if definition.workspace is None else ["workspace", "params"]


def output_keys(definition: TaskDefinition) -> list[str]:
    return ["result"] if definition.workspace is None else ["workspace", "result"]


def parse_input(definition: TaskDefinition, payload: Mapping[str, Any]) -> TaskInput:
    """Validate a task's input whole, before anything is downloaded."""
    expected = input_keys(definition)
    problems = [f"{key}: unknown field" for key in payload if key not in expected]
    problems += [f"{key}: missing" for key in expected if key not in payload]
    if problems:
        raise TaskInputError(f"input of {definition.name} must be exactly {_listed(expected)}: {'; '.join(problems)}")
    workspace = None
    if definition.workspace is not None:
        workspace = _validated(WorkspaceInput, payload["workspace"], "workspace", definition.name)
    params = _validated(definition.params_model, payload["params"], "params", definition.name)
    return TaskInput(workspace, params)


def build_output(definition: TaskDefinition, workspace: WorkspaceOutput | None, result: object) -> dict[str, Any]:
    """The task's output as JSON values; `result` must be what the body's annotation says."""
    return output_of(workspace, dump_result(definition, result))


def output_of(workspace: WorkspaceOutput | None, dumped: dict[str, Any]) -> dict[str, Any]:
    """The output of a result that was dumped before."""
    output: dict[str, Any] = {} if workspace is None else {"workspace": workspace.model_dump(mode="json")}
    return {**output, "result": dumped}


def dump_result(definition: TaskDefinition, result: object) -> dict[str, Any]:
    """A body's result as JSON values that Conductor takes, or an error that says why not."""
    if not isinstance(result, definition.result_model):
        raise TaskExecutionError(
            f"{definition.name} returned {type(result).__name__}, but its annotation says"
            f" {definition.result_model.__name__}"
        )
    try:
        dumped = _serializer(definition.result_model).to_python(result, mode="json", by_alias=True, warnings="error")
        # Conductor refuses NaN and infinities for good, and nobody can send half of a surrogate pair.
        size = len(json.dumps(dumped, allow_nan=False, ensure_ascii=False).encode())
    except Exception as error:
        raise TaskExecutionError(f"{definition.name} returned a result that is not JSON: {error}") from error
    if size > _OUTPUT_BYTES:
        raise TaskExecutionError(
            f"{definition.name} returned a result of {size:,} bytes, more than Conductor keeps in a task"
            f" ({_OUTPUT_BYTES:,}): write it to the workspace and return where it is"
        )
    return dumped


def _serializer(model: type[BaseModel]) -> SchemaSerializer:
    """By the annotated model, as its schema is: what a subclass adds stays with the body."""
    chosen = {word: value for word, value in model.model_config.items() if word.startswith("ser_json")}
    # Pydantic would give NaN for a float, and null where the type is open.
    told = {**chosen, "ser_json_inf_nan": "constants"}
    return SchemaSerializer(TypeAdapter(model).core_schema, cast("CoreConfig", told))


def input_schema(definition: TaskDefinition) -> dict[str, Any]:
    parts = {"params": model_schema(definition.params_model, "validation")}
    return _envelope(definition, WorkspaceInput, parts)


def output_schema(definition: TaskDefinition) -> dict[str, Any]:
    parts = {"result": model_schema(definition.result_model, "serialization")}
    return _envelope(definition, WorkspaceOutput, parts)


def _envelope(definition: TaskDefinition, workspace: type[WorkspaceInput], parts: dict[str, Any]) -> dict[str, Any]:
    if definition.workspace is not None:
        parts = {"workspace": model_schema(workspace, "validation"), **parts}
    kept = {name: schema for part in parts.values() for name, schema in part.pop("$defs", {}).items()}
    closed: dict[str, Any] = {
        "type": "object",
        "properties": parts,
        "required": list(parts),
        "additionalProperties": False,
    }
    return {**closed, "$defs": kept} if kept else closed


def _validated(model: type[Model], value: Any, at: str, task_name: str) -> Model:
    try:
        # Strict, closed and by alias: the same values the TaskDef's schema accepts, no more and no fewer.
        return model.model_validate_json(
            json.dumps(_numbers_as_json_has_them(value)),
            strict=True,
            extra="forbid",
            by_alias=True,
            by_name=False,
        )
    except ValidationError as error:
        raise TaskInputError(f"input of {task_name} is refused: {describe(error, at)}") from error
    except RecursionError:
        raise TaskInputError(f"input of {task_name} is refused: {at}: nested too deep") from None


def _numbers_as_json_has_them(value: Any) -> Any:
    """JSON has one kind of number, so 3.0 is the integer 3 there and must be one here."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _numbers_as_json_has_them(part) for key, part in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_numbers_as_json_has_them(part) for part in cast("list[Any]", value)]
    return value


def _listed(keys: list[str]) -> str:
    return " and ".join(f"'{key}'" for key in keys)
