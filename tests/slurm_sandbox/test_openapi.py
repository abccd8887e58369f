"""Every field that a model reads or a description sends exists in the OpenAPI document of the real server, with the type we expect, in every version served."""

import asyncio
import inspect
import types
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest

from slinky.sandbox.handle import Sandbox
from slinky.slurm import JobFlag, JobState, NodeFlag, NodeState, SlurmClient, TokenFile, descriptions
from slinky.slurm.models import accounting, cluster, jobs, nodes
from slinky.slurm.numbers import Infinite, Triplet
from slinky.slurm.versions import NEWEST, OLDEST, Version, offered

pytestmark = pytest.mark.sandbox


def models() -> Iterator[type[msgspec.Struct]]:
    for module in (jobs, nodes, cluster, accounting, descriptions):
        for value in vars(module).values():
            if inspect.isclass(value) and issubclass(value, msgspec.Struct) and "SCHEMA" in vars(value):
                yield value


@pytest.fixture(scope="module")
def document(sandbox: Sandbox) -> dict[str, Any]:
    async def fetch() -> dict[str, Any]:
        async with SlurmClient(sandbox.slurm_server, TokenFile(sandbox.token_file)) as client:
            return await client.call("GET", "/openapi/v3")

    return asyncio.run(fetch())


def schema_of(document: dict[str, Any], version: Version, name: str) -> dict[str, Any] | None:
    """`partition_info.nodes` is the object `nodes` inside the schema `partition_info`."""
    first, *inner = name.split(".")
    schema = document["components"]["schemas"].get(f"{version}_{first}")
    for step in inner:
        schema = resolve(document, (schema or {}).get("properties", {}).get(step))
    return resolve(document, schema)


def resolve(document: dict[str, Any], schema: dict[str, Any] | None) -> dict[str, Any] | None:
    while schema and "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


TYPES = {str: "string", int: "integer", bool: "boolean", float: "number"}


def mismatch(document: dict[str, Any], told: dict[str, Any], annotation: Any) -> str:
    """Empty where what the server tells fits what we expect."""
    schema = resolve(document, told) or {}
    kind = schema.get("type")
    if get_origin(annotation) in (Union, types.UnionType):
        options = [option for option in get_args(annotation) if option is not type(None)]
        if Infinite in options:  # a plain number is taken where a triplet is described
            return "" if set(schema.get("properties", ())) == {"set", "infinite", "number"} else f"{kind}, not a triplet"
        [annotation] = options
    if get_origin(annotation) is list:
        return mismatch(document, schema["items"], get_args(annotation)[0]) if kind == "array" else f"{kind}, not an array"
    if annotation is Triplet:
        return "" if set(schema.get("properties", ())) == {"set", "infinite", "number"} else f"{kind}, not a triplet"
    if inspect.isclass(annotation) and issubclass(annotation, msgspec.Struct):
        return "" if kind == "object" else f"{kind}, not an object"
    expected = TYPES[annotation]
    return "" if kind == expected else f"{kind}, not {expected}"


def served(document: dict[str, Any]) -> list[Version]:
    return [version for version in offered(document["paths"]) if OLDEST <= version <= NEWEST]


def test_every_field_is_there_with_its_type_in_every_version(document: dict[str, Any]) -> None:
    checked, wrong = 0, []
    for version in served(document):
        for model in models():
            name: str = model.SCHEMA  # type: ignore[attr-defined]
            schema = schema_of(document, version, name)
            if schema is None:
                if (name, version.number) not in ABSENT:
                    wrong.append(f"{version}: no schema {name}")
                continue
            since: dict[str, int] = getattr(model, "SINCE", {})
            for field in msgspec.structs.fields(model):
                if field.encode_name == "other" or field.name in INHERITED:
                    continue
                told = schema.get("properties", {}).get(field.encode_name)
                if told is None:
                    if version.number >= since.get(field.encode_name, 0):
                        wrong.append(f"{version}: {name} has no {field.encode_name}")
                    continue
                checked += 1
                if problem := mismatch(document, told, field.type):
                    wrong.append(f"{version}: {name}.{field.encode_name} is {problem}")
    assert not wrong, "\n".join(wrong)
    assert checked > 3 * 250, f"only {checked} fields were checked"


# Schemas that came with a call of a later version (versions.SINCE).
ABSENT = {("node_gres_layout", 43), ("node_resource_layout", 43)}
INHERITED = {"errors", "warnings"}


def test_the_test_can_fail(document: dict[str, Any]) -> None:
    told = schema_of(document, Version(45), "job_info")
    assert told
    assert mismatch(document, told["properties"]["job_id"], str) == "integer, not string"
    assert mismatch(document, told["properties"]["time_limit"], int) == "object, not integer"
    assert mismatch(document, told["properties"]["job_state"], list[int]) == "string, not integer"


def test_every_state_and_flag_that_is_described_has_its_word(document: dict[str, Any]) -> None:
    for version in served(document):
        for name, field, known in (
            ("job_info", "job_state", {*map(str, JobState), *map(str, JobFlag)}),
            ("node", "state", {*map(str, NodeState), *map(str, NodeFlag)}),
        ):
            schema = schema_of(document, version, name)
            assert schema
            told = resolve(document, schema["properties"][field])
            assert told
            items = resolve(document, told["items"])
            assert items
            assert set(items["enum"]) <= known
