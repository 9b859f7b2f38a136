"""One task of a stage of the pipeline: prepares a part of the data, trains a model on all parts, or
tests it.

Stages hand on files in DATA, a directory that all hosts share; on a cluster without one use an
object store.
"""

import json
import os
from pathlib import Path

DATA, STAGE = Path(os.environ["DATA"]), os.environ["STAGE"]


def prepare(part: int, parts: int) -> str:
    points = [(x, 2 * x + 1) for x in range(part, 100, parts)]
    (DATA / f"part-{part}.json").write_text(json.dumps(points))
    return f"part {part} of {parts}: {len(points)} points"


def train() -> str:
    points = [
        point for part in sorted(DATA.glob("part-*.json")) for point in json.loads(part.read_text())
    ]
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum(
        (x - mean_x) ** 2 for x, _ in points
    )
    (DATA / "model.json").write_text(json.dumps([slope, mean_y - slope * mean_x]))
    return f"y = {slope:g} x + {mean_y - slope * mean_x:g}, from {len(points)} points"


def test(odd: int) -> str:
    slope, offset = json.loads((DATA / "model.json").read_text())
    worst = max(abs(slope * x + offset - (2 * x + 1)) for x in range(100 + odd, 200, 2))
    return f"the largest error is {worst:.3f}"


if STAGE == "prepare":
    print(prepare(int(os.environ["IRIS_TASK_INDEX"]), int(os.environ["IRIS_NUM_TASKS"])))
elif STAGE == "train":
    print(train())
else:
    print(test(odd=STAGE == "test-on-odd"))
