"""Submit a job durably with nothing but a NATS client: `python submit.py NATS_URL NAME COMMAND...`."""

import asyncio
import sys
import time
import uuid

import nats

from iris_core.codec import pack, unpack
from iris_core.messages import Answer, Caller, SubmitJob
from iris_core.spec import JobSpec


async def main(url: str, name: str, *command: str) -> None:
    client = await nats.connect(url)
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    request = SubmitJob(
        JobSpec(name=name, command=command),
        Caller("ann"),
        uuid.uuid4().hex,
        time.time_ns() // 1_000_000,
        answer_to=inbox,
    )
    stored = await client.jetstream().publish("iris.cmd.submit", pack(request))
    print(f"stored as command {stored.seq}: it will be carried out", flush=True)
    answer = unpack((await answers.next_msg(timeout=60)).data, Answer)
    print(answer.status, answer.body.decode())
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
