"""OpenTelemetry's GenAI conventions, as data, and whether spans follow them.

The data are made from a checkout of the repository of the conventions:

```console
$ git clone https://github.com/open-telemetry/semantic-conventions-genai
$ PYTHONPATH=tests python -m support.genai_registry semantic-conventions-genai
```
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import jsonschema
from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["DATA", "RENAMED", "faults", "made_from"]

DATA: Final = Path(__file__).parents[1] / "golden" / "genai_conventions.json"

OPERATIONS: Final = {
    "chat": "gen_ai.inference.client",
    "text_completion": "gen_ai.inference.client",
    "embeddings": "gen_ai.embeddings.client",
    "retrieval": "gen_ai.retrieval.client",
    "invoke_agent": "gen_ai.invoke_agent.internal",
    "execute_tool": "gen_ai.execute_tool.internal",
}
"""The kind of span that an operation is."""

NAMED_BY: Final = {
    "gen_ai.inference.client": "gen_ai.request.model",
    "gen_ai.embeddings.client": "gen_ai.request.model",
    "gen_ai.retrieval.client": "gen_ai.data_source.id",
    "gen_ai.invoke_agent.internal": "gen_ai.agent.name",
    "gen_ai.execute_tool.internal": "gen_ai.tool.name",
}
"""What follows the operation in the name of a span; the registry says it in words only."""

RENAMED: Final = {
    "gen_ai.usage.cache_write.input_tokens": "gen_ai.usage.cache_creation.input_tokens"
}
"""Attributes that have another name since the commit that the data were made from."""

OTHERS: Final = ("error.type", "user.id", "session.id", "server.address", "server.port")
"""Attributes of the general conventions that spans may have, all of them texts but the port."""

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "int": (int,),
    "double": (float,),
    "boolean": (bool,),
    "any": (str,),  # JSON, since an attribute of a span is not structured yet
    "template[any]": (str,),
}


def made_from(checkout: Path) -> dict[str, Any]:
    """Attributes with their types, and kinds of spans with theirs, of a checkout."""
    import yaml

    def git(*command: str) -> str:
        return subprocess.run(
            ["git", "-C", checkout, *command], stdout=subprocess.PIPE, text=True, check=True
        ).stdout.strip()

    def read(name: str) -> Any:
        return yaml.safe_load(git("show", f"HEAD:model/{name}"))

    groups: dict[str, list[dict[str, Any]]] = {}
    attributes, schemas, kinds = {}, {}, {}
    for one in read("gen-ai/registry.yaml")["attributes"]:
        kind = one["type"]
        attributes[one["key"]] = "string" if isinstance(kind, dict) else kind
        schema = one.get("annotations", {}).get("type", {}).get("json_schema")
        if schema is not None:
            schemas[one["key"]] = _without_texts(json.loads(git("show", f"HEAD:{schema}")))
    spans = read("gen-ai/spans.yaml")
    for group in spans["attribute_groups"]:
        groups[group["id"]] = group["attributes"]

    def levels(given: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
        for one in given:
            if "ref_group" in one:
                yield from levels(groups[one["ref_group"]])
            elif "requirement_level" in one:
                level = one["requirement_level"]
                yield one["ref"], level if isinstance(level, str) else next(iter(level))
            else:
                yield one["ref"], ""

    for span in spans["spans"]:
        found: dict[str, str] = {}
        for name, level in levels(span["attributes"]):
            found[name] = level or found.get(name, "recommended")
        if span["type"] in NAMED_BY:
            kinds[span["type"]] = {"kind": span["kind"], "attributes": found}
    return {
        "source": "https://github.com/open-telemetry/semantic-conventions-genai",
        "commit": git("rev-parse", "HEAD"),
        "schema_url": read("manifest.yaml")["schema_url"],
        "attributes": attributes,
        "json_schemas": schemas,
        "spans": kinds,
    }


def _without_texts(schema: Any) -> Any:
    """A schema without what people read."""
    if isinstance(schema, list):
        return [_without_texts(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    texts = ("description", "title", "default")
    return {
        name: _without_texts(value)
        for name, value in schema.items()
        if name not in texts or isinstance(value, dict)
    }


def faults(spans: Sequence[ReadableSpan], *, contents: bool = False) -> list[str]:
    """In what the spans do not follow the conventions, a line each.

    Args:
        spans: spans that are tidegauge's own.
        contents: whether they may hold contents.
    """
    known = json.loads(DATA.read_text())
    found: list[str] = []
    for span in spans:
        given = dict(span.attributes or {})
        operation = given.get("gen_ai.operation.name")
        found += [f"{span.name}: {fault}" for fault in _wrong_attributes(given, known)]
        if operation is None:
            if not all(name.startswith("tidegauge.") or name in OTHERS for name in given):
                found.append(f"{span.name}: no operation")
            continue
        kind = known["spans"][OPERATIONS[str(operation)]]
        if span.kind.name.lower() != kind["kind"]:
            found.append(f"{span.name}: {span.kind.name} instead of {kind['kind']}")
        named = given.get(NAMED_BY[OPERATIONS[str(operation)]])
        if span.name != (operation if named is None else f"{operation} {named}"):
            found.append(f"{span.name}: not named by {operation} and {named}")
        for name, level in kind["attributes"].items():
            if level == "required" and name not in given:
                found.append(f"{span.name}: without {name}")
            if level == "opt_in" and name in given and not contents:
                found.append(f"{span.name}: {name} without being asked for")
        allowed = kind["attributes"]
        for name in given:
            if name.startswith("gen_ai.") and RENAMED.get(name, name) not in allowed:
                found.append(f"{span.name}: {name} is not of this kind of span")
    return found


def _wrong_attributes(given: dict[str, Any], known: dict[str, Any]) -> Iterator[str]:
    for name, value in given.items():
        if name.startswith("tidegauge."):
            continue
        if not name.startswith("gen_ai."):
            if name not in OTHERS:
                yield f"{name} is of no known namespace"
            continue
        kind = known["attributes"].get(RENAMED.get(name, name))
        if kind is None:
            yield f"{name} is not in the registry"
            continue
        if kind.endswith("[]"):
            if type(value) is not tuple or not all(type(one) is str for one in value):
                yield f"{name} is {value!r}, not {kind}"
        elif type(value) not in _TYPES[kind]:
            yield f"{name} is {value!r}, not {kind}"
        schema = known["json_schemas"].get(name)
        # Arguments and results may be anything: the schema of an object is only expected.
        if schema is not None and not name.startswith("gen_ai.tool.call."):
            try:
                jsonschema.validate(json.loads(value), schema)
            except (ValueError, jsonschema.ValidationError) as error:
                yield f"{name}: {str(error).splitlines()[0]}"


if __name__ == "__main__":
    DATA.write_text(json.dumps(made_from(Path(sys.argv[1])), indent=1, sort_keys=True) + "\n")
