"""Reads what the night has made: every shard, and the model."""

import os
from pathlib import Path

night = Path(os.environ["NIGHT"])
shards = sorted(int(path.name.removeprefix("shard-")) for path in night.glob("shard-*"))
print(f"shards {shards}, a model of {(night / 'model').read_text().strip()}")
