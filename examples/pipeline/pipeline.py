"""A pipeline: a job whose task submits the stages as child jobs and waits for each.

When this task starts again, the stages that it submitted before are found by their keys and do not
run twice.
"""

import os
import sys

from iris import Client, Job

CRASHES = os.environ.get("CRASH") and os.environ["IRIS_ATTEMPT"] == "0"

with Client() as client:
    me = client.job(os.environ["IRIS_JOB"]).view

    def stage(name: str, replicas: int = 1) -> Job:
        """A child of this job that runs this directory's stage.py."""
        return client.run(
            ["python", "stage.py"],
            name=name,
            replicas=replicas,
            bundle=me.spec.bundle,
            env={"STAGE": name, "DATA": os.environ["DATA"]},
            cpu=0.5,
            idempotency_key=f"{me.id}-{name}",
        )

    stage("prepare", replicas=4).result()
    print("prepared", flush=True)
    if CRASHES:
        sys.exit("crashing, as CRASH demands")
    stage("train").result()
    print("trained", flush=True)
    tests = [stage("test-on-even"), stage("test-on-odd")]
    for test in tests:
        test.result()
    print("tested", flush=True)
