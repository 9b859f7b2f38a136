"""Tables of the fields of JSON objects, from JSON Schema as msgspec makes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from drawings.markdown import grid

Schema = Mapping[str, Any]

_LIMITS = {
    "minimum": "at least",
    "maximum": "at most",
    "maxLength": "characters: at most",
    "minItems": "items: at least",
}


def type_of(schema: Schema) -> str:
    """A type in words, with a link to the section of each object on the same page."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return "one of " + ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(type_of(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        items = schema.get("items") or {"anyOf": schema.get("prefixItems", [{}])}
        return f"list of {type_of(items)}"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"map of {type_of(values)}" if isinstance(values, Mapping) and values else "object"
    kind: str = schema.get("format") or schema.get("type") or "any value"
    return kind


def limits_of(schema: Schema) -> str:
    """What a value must satisfy besides its type."""
    said = [f"{words} {schema[key]}" for key, words in _LIMITS.items() if key in schema]
    return "; ".join(said + ([f"pattern `{schema['pattern']}`"] if "pattern" in schema else []))


def _rows(schema: Schema) -> Iterator[tuple[str, ...]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        default = (
            "required"
            if name in required
            else f"`{json.dumps(field['default'])}`"
            if "default" in field
            else ""
        )
        yield f"`{name}`", type_of(field), default, limits_of(field)


def field_table(schema: Schema) -> str:
    """The fields of one object: type, default, and limits where it has some."""
    rows = list(_rows(schema))
    shown = 4 if any(limits for *_, limits in rows) else 3
    return grid(("field", "type", "default", "limits")[:shown], (row[:shown] for row in rows))


def answer_table(schema: Schema) -> str:
    """The fields of an object that is only received."""
    return grid(("field", "type"), ((name, kind) for name, kind, *_ in _rows(schema)))
