"""Journals and snapshots of every release, which must always replay; ``python -m tests.golden
v0_2`` adds one.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from iris_core import messages

KINDS: dict[str, Any] = {
    name: kind
    for module in iter_modules(messages.__path__, f"{messages.__name__}.")
    for name, kind in vars(import_module(module.name)).items()
}
"""Every kind of message by its name."""
