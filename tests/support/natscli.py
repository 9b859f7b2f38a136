"""A stand-in for the one command of the command line of NATS that a page uses, where that is not
installed.

Source: the JetStream API ``$JS.API.SERVER.REMOVE`` of the system account.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

import nats


async def remove(server: str, seed_file: Path, peer: str) -> str:
    """Tell the servers that one of them does not come back; returns their answer."""
    connection = await nats.connect(server, nkeys_seed_str=seed_file.read_text().strip())
    try:
        answer = await connection.request(
            "$JS.API.SERVER.REMOVE", json.dumps({"peer": peer}).encode(), timeout=10
        )
        return answer.data.decode()
    finally:
        await connection.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--nkey", type=Path, required=True)
    parser.add_argument("command", nargs=3)
    parser.add_argument("peer")
    parser.add_argument("--force", action="store_true", required=True)
    given = parser.parse_args()
    assert given.command == ["server", "cluster", "peer-remove"]
    answer = json.loads(asyncio.run(remove(given.server, given.nkey, given.peer)))
    assert answer.get("success"), answer


if __name__ == "__main__":
    main()
