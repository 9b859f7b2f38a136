"""Submit a job with nothing but a NATS client: `python submit.py NATS_URL SEED_FILE NAME
COMMAND...`.

A request to the leader of the state service, repeated under one id until it is answered: it takes
    effect once.
"""

import asyncio
import sys
import time
import uuid
from pathlib import Path

import nats
from nats.errors import NoRespondersError

from iris_bus.connection.accounts import inbox
from iris_bus.connection.keys import public_key
from iris_core.codec import pack, unpack
from iris_core.messages.gateway_state import Answer, Caller, SubmitJob
from iris_core.spec.jobs import JobSpec
from iris_core.subjects import CMD_SUBMIT


async def main(url: str, seed: str, name: str, *command: str) -> None:
    client = await nats.connect(url, nkeys_seed=seed, inbox_prefix=inbox(public_key(Path(seed))))
    spec = JobSpec(name=name, command=command)
    request = pack(SubmitJob(spec, Caller("ann"), uuid.uuid4().hex, time.time_ns() // 1_000_000))
    for pause_s in (0.1, 0.5, 1, 2, 5, 10, 10, 10, 10, 10):  # about a minute
        try:
            answer = unpack(
                (await client.request(CMD_SUBMIT, request, timeout=pause_s)).data, Answer
            )
        except (NoRespondersError, TimeoutError):
            print("the state service does not answer; trying again", file=sys.stderr)
        else:
            print(answer.status, answer.body.decode())
            if answer.status != "unavailable":  # the leader takes no more just now
                break
        await asyncio.sleep(pause_s)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
