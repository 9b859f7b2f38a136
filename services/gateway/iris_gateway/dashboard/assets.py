"""The static files of the dashboard: those of ``static``, the glyphs, and an icon for each of three
states.
"""

from __future__ import annotations

from hashlib import blake2b
from importlib import resources

from iris_core.states import DISPLAY_COLOURS, TaskState
from iris_gateway.dashboard.drawings import glyphs

_KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def _assets() -> tuple[dict[str, tuple[bytes, str]], str]:
    """Bodies and media types by file name, and the version of all of them."""
    folder = resources.files("iris_gateway.dashboard") / "static"
    bodies = {file.name: file.read_bytes() for file in folder.iterdir()} | glyphs.files()
    icon = bodies["iris.svg"]
    for state in ("running", "succeeded", "failed"):
        colour = DISPLAY_COLOURS[TaskState[state.upper()]]
        bodies[f"iris-{state}.svg"] = icon.replace(b"#8250df", colour.encode())
    everything = b"".join(bodies[name] for name in sorted(bodies)) + glyphs.css("").encode()
    version = blake2b(everything, digest_size=6).hexdigest()
    bodies["iris.css"] += glyphs.css(version).encode()
    return {name: (body, _KINDS[name.rpartition(".")[2]]) for name, body in bodies.items()}, version


ASSETS, VERSION = _assets()
"""A browser keeps what it has loaded under an address with the version, so it asks for a style
sheet once a release.
"""
