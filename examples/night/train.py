"""A training that goes on where it was stopped: after a preemption, a requeue, or the loss of its
host.
"""

import os
import signal
import sys
import time
from pathlib import Path
from threading import Event

STEPS = 100
TRY_AGAIN = 75

night = Path(os.environ["NIGHT"])
checkpoint, model = night / "checkpoint", night / "model"
is_first = os.environ["IRIS_TASK_INDEX"] == "0"
stopped = Event()


def save(step: int) -> None:
    """Replace the checkpoint whole, so that a crash leaves the one before."""
    if is_first:
        checkpoint.with_suffix(".new").write_text(str(step))
        checkpoint.with_suffix(".new").replace(checkpoint)


signal.signal(signal.SIGUSR1, lambda *_: stopped.set())
step = int(checkpoint.read_text()) if checkpoint.exists() else 0
print(f"begins at step {step}", flush=True)
while step < STEPS:
    time.sleep(0.2)  # stands for the work
    step += 1
    if step % 10 == 0 or stopped.is_set():
        save(step)
        print(f"step {step} is saved", flush=True)
    if stopped.is_set():
        sys.exit(TRY_AGAIN)
if is_first:
    model.write_text(f"{step} steps\n")
