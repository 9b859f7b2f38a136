"""Every change of a task's state, with nothing but a NATS client: `python watch_events.py [NATS_URL]`."""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

import nats

CLUSTER = Path(os.environ.get("IRIS_DATA", Path.home() / ".local/state/iris")) / "cluster.json"


async def main(url: str | None) -> None:
    client = await nats.connect(url or json.loads(CLUSTER.read_text())["nats_url"])
    events = await client.subscribe("task.state.*")
    await client.flush()
    print("watching; Ctrl-C ends it", file=sys.stderr)
    async for message in events.messages:
        event = json.loads(message.data)
        print(f"{event['seq']:>8}  {event['task']}  {event['previous'] or '-'} -> {event['state']}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print every change of a task's state until Ctrl-C.")
    parser.add_argument("url", nargs="?", metavar="NATS_URL", help="default: that of the local cluster")
    asyncio.run(main(parser.parse_args().url))
