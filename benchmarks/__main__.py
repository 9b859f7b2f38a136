"""``python -m benchmarks [B1 B4 ...] [--quick] [--json] [--no-peers]``: every row, the peers beside
it, one table.

With ``--json`` one JSON object a line and nothing else on stdout. Each run is also kept in
`benchmarks/results/` with what machine it was.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from benchmarks import peer_runs
from benchmarks.result import Row

ROWS = {
    "B1": "b1_control_plane",
    "B1b": "b1b_growth",
    "B2": "b2_processes",
    "B2f": "b2f_files",
    "B2i": "b2i_images",
    "B3": "b3_latency",
    "B3g": "b3g_gang_latency",
    "B4": "b4_plan",
    "B5": "b5_gangs",
    "B5e": "b5_end_to_end",
    "B6": "b6_heartbeats",
    "B7": "b7_recovery",
    "B8": "b8_queue",
    "B9": "b9_gateway",
    "B10": "b10_proxy",
    "B11": "b11_reads",
    "B12": "b12_functions",
    "B13": "b13_trickle",
    "B14": "b14_pages",
    "B15": "b15_fleet",
}
RESULTS = Path(__file__).resolve().parent / "results"


def main() -> int:
    """Run the rows that were asked for; 1 when one of them could not be run."""
    options = _options()
    load = os.getloadavg()[0]
    wanted = [row for row in ROWS if not options.rows or row in options.rows]
    peers, left_out = (
        ({}, []) if options.no_peers else peer_runs.measure(set(wanted), options.quick)
    )
    rows, failed = [], []
    for name in wanted:
        try:
            others = {key: found for key, found in peers.items() if key.startswith(f"{name}_")}
            row = _program(name)(quick=options.quick).against(peers.get(name, {}), others)
        except Exception as error:  # noqa: BLE001 - one row that cannot run does not take the others with it
            failed.append("\n".join([f"{name}: {error!r}", *getattr(error, "__notes__", ())]))
            continue
        rows.append(row)
        if options.json:
            print(msgspec.json.encode(row).decode(), flush=True)
        else:
            print(_line(row), flush=True)
    for sentence in (*left_out, *failed):
        print(sentence, file=sys.stderr)
    _keep(rows, left_out, options.quick, load)
    return 1 if failed else 0


def _program(row: str) -> Callable[..., Row]:
    run: Callable[..., Row] = importlib.import_module(f"benchmarks.{ROWS[row]}").run
    return run


def _line(row: Row) -> str:
    mark = "reached" if row.reached else "short"
    spread = f"[{min(row.runs):g} .. {max(row.runs):g}]" if row.runs else ""
    peers = "  ".join(f"{name} {value:g}" for name, value in row.peers.items())
    ratio = f"  x{row.ratio:g} of the best peer" if row.ratio is not None else ""
    ratio += "".join(f"  x{of:g} of {name}" for name, of in row.of_floor.items())
    size = f"{row.rss_bytes / 1e6:.0f} MB"
    return f"{row.row:4} {row.value:>12,.1f} {row.unit:8} goal {row.goal:>8,g} {mark:8} {spread}  {size}  {peers}{ratio}"


def _keep(rows: list[Row], left_out: list[str], quick: bool, load: float) -> None:
    """A record of the run with the machine's facts, so that figures can be compared later.

    Args:
        load: processes that wanted to run before the first row, a mean over a minute.
    """
    RESULTS.mkdir(exist_ok=True)
    memory = psutil.virtual_memory().total
    facts: dict[str, Any] = {
        "cores": psutil.cpu_count(),
        "memory_bytes": memory,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load": round(load, 1),
        "quick": quick,
        "left_out": left_out,
    }
    name = time.strftime("%Y-%m-%d-%H%M%S", time.gmtime())
    record = msgspec.json.format(msgspec.json.encode({"machine": facts, "rows": rows}))
    (RESULTS / f"{name}.json").write_bytes(record + b"\n")


def _options(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "rows",
        nargs="*",
        metavar="ROW",
        help=f"which rows; all when none is named: {' '.join(ROWS)}",
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller sizes: each row in under 50 s"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--no-peers", action="store_true", help="do not run the peers beside us")
    options = parser.parse_args(words)
    if unknown := set(options.rows) - ROWS.keys():
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    sys.exit(main())
