"""Every change of a task's state, with nothing but a NATS client: `python watch_events.py [NATS_URL
SEED_FILE]`.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

import nats

DATA = Path(os.environ.get("IRIS_DATA", Path.home() / ".local/state/iris"))


async def main(url: str | None, seed: Path) -> None:
    url = url or json.loads((DATA / "cluster.json").read_text())["nats_url"]
    client = await nats.connect(url, nkeys_seed=str(seed))
    events = await client.subscribe("task.state.*")
    await client.flush()
    print("watching; Ctrl-C ends it", file=sys.stderr)
    async for message in events.messages:
        event = json.loads(message.data)
        print(
            f"{event['seq']:>8}  {event['task']}  {event['previous'] or '-'} -> {event['state']}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Print every change of a task's state until Ctrl-C."
    )
    parser.add_argument(
        "url", nargs="?", metavar="NATS_URL", help="default: that of the local cluster"
    )
    observer = DATA / "nats/keys/observer-local.seed"
    parser.add_argument(
        "seed",
        nargs="?",
        metavar="SEED_FILE",
        type=Path,
        default=observer,
        help="an observer's key",
    )
    given = parser.parse_args()
    asyncio.run(main(given.url, given.seed))
