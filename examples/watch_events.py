"""Every change of a task's state, with nothing but a NATS client: `python watch_events.py [NATS_URL]`."""

import asyncio
import json
import os
import sys
from pathlib import Path

import nats

CLUSTER = Path(os.environ.get("IRIS_DATA", Path.home() / ".local/state/iris")) / "cluster.json"


async def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else json.loads(CLUSTER.read_text())["nats_url"]
    client = await nats.connect(url)
    events = await client.subscribe("task.state.*")
    await client.flush()
    print("watching; Ctrl-C ends it", file=sys.stderr)
    async for message in events.messages:
        event = json.loads(message.data)
        print(f"{event['seq']:>8}  {event['task']}  {event['previous'] or '-'} -> {event['state']}", flush=True)


asyncio.run(main())
