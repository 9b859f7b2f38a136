"""Draw the pages, the files of deploy/ and the asynchronous client, which are made from the code:
`make draw`.

`--check` writes nothing and fails when a drawing is stale. What is drawn is in `drawings`, one
document a module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from drawings.alerts import alerts_document
from drawings.architecture import architecture_document
from drawings.async_client import async_client_source
from drawings.cli import cli_document
from drawings.configuration import configuration_document
from drawings.dashboards import DASHBOARDS, dashboard_document
from drawings.http import http_document
from drawings.layers import layers_document
from drawings.metrics import metrics_document
from drawings.problems import problems_document
from drawings.readers import readers_document
from drawings.reasons import reasons_document
from drawings.rights import rights_document
from drawings.sdk import sdk_document
from drawings.shared import security_document
from drawings.sizing import sizing_document
from drawings.states import states_document
from drawings.subjects import subjects_document

ROOT = Path(__file__).resolve().parents[1]
DRAWINGS: dict[str, Callable[[], str]] = {
    "libs/iris/iris/client/async_client.py": async_client_source,
    "docs/cli.md": cli_document,
    "docs/images/architecture.svg": architecture_document,
    "docs/configuration.md": configuration_document,
    "docs/http.md": http_document,
    "docs/layers.md": layers_document,
    "docs/metrics.md": metrics_document,
    "docs/operating.md": readers_document,
    "docs/problems.md": problems_document,
    "docs/reasons.md": reasons_document,
    "docs/rights.md": rights_document,
    "docs/sdk.md": sdk_document,
    "docs/security.md": security_document,
    "docs/sizing.md": sizing_document,
    "docs/states.md": states_document,
    "docs/subjects.md": subjects_document,
    "deploy/prometheus/alerts.yml": alerts_document,
    **{
        f"deploy/grafana/dashboards/{uid}.json": partial(dashboard_document, uid)
        for uid in DASHBOARDS
    },
}


def stale() -> list[str]:
    """The drawings that differ from what the code says now."""
    return [
        name
        for name, draw in DRAWINGS.items()
        if not (ROOT / name).exists() or (ROOT / name).read_text(encoding="utf-8") != draw()
    ]


def main() -> int:
    """Write the drawings, or with ``--check`` say which are stale; 1 when some are."""
    if "--check" in sys.argv[1:]:
        old = stale()
        for name in old:
            print(f"{name} is stale: run `make draw` and commit it", file=sys.stderr)
        return 1 if old else 0
    for name, draw in DRAWINGS.items():
        (ROOT / name).write_text(draw(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
