"""JSON merge patches. Pure. Source: RFC 7396."""

from __future__ import annotations

from typing import Any


def merged(value: Any, patch: Any) -> Any:
    """Plain values with a JSON merge patch on top: null takes a member away, objects are merged."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for key, item in patch.items():
        if item is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), item)
    return result
