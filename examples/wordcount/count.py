"""One task of the word count: its share of the standard library's sources. The first task has the
parts merged.

Everything it needs to know is in its environment: which share is its own, and where the gateway is.
"""

import collections
import json
import os
import re
import sys
import sysconfig
from pathlib import Path

from iris import Client

INDEX, TASKS = int(os.environ["IRIS_TASK_INDEX"]), int(os.environ["IRIS_NUM_TASKS"])
RESULTS = Path(os.environ["RESULTS"])
WORD = re.compile(r"[A-Za-z_]{3,}")


def count() -> None:
    """Write how often each word stands in this task's share of the files."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))
    files = [path for path in files if "site-packages" not in path.parts][INDEX::TASKS]
    words: collections.Counter[str] = collections.Counter()
    for path in files:
        words.update(WORD.findall(path.read_text(errors="replace")))
    (RESULTS / f"part-{INDEX}.json").write_text(json.dumps(words))
    print(
        f"task {INDEX}: {sum(words.values()):,} words in {len(files)} files on {os.environ['IRIS_WORKER_ID']}"
    )


def merge() -> None:
    """Wait for the other tasks, then submit a child job that merges the parts."""
    with Client() as client:
        job = client.job(os.environ["IRIS_JOB"])
        with job.stream() as changes:  # connected: nothing that happens from here on is missed
            missing = {f"{job.name}/{index}" for index in range(1, TASKS)}
            missing -= {task.task for task in job.tasks(state="succeeded")}
            while missing:
                change = next(changes)
                if change.name == "task.state.succeeded":
                    missing.discard(json.loads(change.data)["task"])
        child = client.run(
            [sys.executable, "merge.py"],
            name="merge",
            bundle=job.view.spec.bundle,
            env={"RESULTS": str(RESULTS)},
        )
        child.result()


count()
if INDEX == 0:
    merge()
