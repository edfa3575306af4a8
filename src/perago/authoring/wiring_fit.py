"""Whether the values of one JSON schema can fit another.

Doubt is silence: what a schema leaves open is taken to fit, so that every misfit is a mistake.
"""

from dataclasses import dataclass, replace
from typing import Any

from perago.authoring.wiring_schema import (
    Each,
    Schema,
    Step,
    among,
    described,
    field_of,
    may_be,
    members_of,
    part_at,
    refusal_of,
    typed,
    types_of,
    values_of,
)


@dataclass(frozen=True)
class Misfit:
    """What at `path` of the source can never fit the target; `problem` completes a sentence about it."""

    path: tuple[Step, ...]
    problem: str
    of_the_name: bool = False


def misfits(source: Schema, target: Schema) -> list[Misfit]:
    """Everything of `source` that no value can make fit `target`."""
    return _Comparison().of(source, target)


class _Comparison:
    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[Misfit]] = {}

    def of(self, source: Schema, target: Schema) -> list[Misfit]:
        pair = id(source.node), id(target.node)
        if pair not in self._known:
            self._known[pair] = []  # recursion comes back to a pair under comparison: it adds nothing new
            self._known[pair] = self._of_members(source, target)
        return self._known[pair]

    def _of_members(self, source: Schema, target: Schema) -> list[Misfit]:
        pairs = [(mine, theirs) for mine in members_of(source) for theirs in members_of(target) if _meet(mine, theirs)]
        if not pairs:
            return [Misfit((), f"is {typed(source)} where {described(target)} is needed")]
        found: list[list[Misfit]] = []
        for mine, theirs in pairs:
            found.append(self._of_pair(mine, theirs))
            if not found[-1]:
                return []
        return min(found, key=len)

    def _of_pair(self, source: Schema, target: Schema) -> list[Misfit]:
        values = values_of(source)
        if values is not None:
            refusals = [refusal_of(value, target) for value in values]
            return [Misfit((), refusal) for refusal in refusals[:1] if refusal and None not in refusals]
        if types_of(target) is None or types_of(source) not in ({"object"}, {"array"}):
            return []
        return self._of_objects(source, target) if may_be(source, "object") else self._of_arrays(source, target)

    def _of_objects(self, source: Schema, target: Schema) -> list[Misfit]:
        given: dict[str, Any] = source.words.get("properties", {})
        known: dict[str, Any] = target.words.get("properties", {})
        always: list[str] = source.words.get("required", [])
        found: list[Misfit] = []
        for name in dict.fromkeys([*given, *target.words.get("required", [])]):
            mine, theirs = field_of(source, name), field_of(target, name)
            if theirs is None:
                unknown = Misfit((name,), f"is unknown{among(name, known, 'known')}", of_the_name=True)
                found += [unknown] if name in always else []
            elif mine is None:
                need = f"is missing: {described(theirs)} is needed"
                found.append(Misfit((name,), need + among(name, given, "given")))
            else:
                found += self._under(name, mine, theirs)
        mine, theirs = (schema.words.get("additionalProperties") for schema in (source, target))
        if isinstance(mine, dict) and isinstance(theirs, dict):
            found += self._under(Each.ITEM, source.part(mine), target.part(theirs))
        return found

    def _of_arrays(self, source: Schema, target: Schema) -> list[Misfit]:
        words, needs = source.words, target.words
        fewest, most = words.get("minItems", 0), words.get("maxItems")
        if fewest > needs.get("maxItems", fewest):
            return [Misfit((), f"must have a length of at most {needs['maxItems']}, not {fewest}")]
        if most is not None and most < needs.get("minItems", 0):
            return [Misfit((), f"must have a length of at least {needs['minItems']}, not {most}")]
        first: list[Any] = words.get("prefixItems", [])
        steps: list[Step] = [*range(len(first))] if first else [Each.ITEM] * ("items" in words)
        parts = ((step, part_at(source, step), part_at(target, step)) for step in steps)
        return [misfit for step, mine, theirs in parts if mine and theirs for misfit in self._under(step, mine, theirs)]

    def _under(self, step: Step, source: Schema, target: Schema) -> list[Misfit]:
        return [replace(misfit, path=(step, *misfit.path)) for misfit in self.of(source, target)]


def _meet(source: Schema, target: Schema) -> bool:
    mine, theirs = types_of(source), types_of(target)
    if mine is None or theirs is None or mine & theirs:
        return True
    # A number may turn out whole; a literal that is not is refused by its value.
    return bool(mine & {"integer", "number"} and theirs & {"integer", "number"})
