"""Makes one shard of the data, of the number that the array gives this task."""

import os
import time
from pathlib import Path

shard = os.environ["IRIS_ARRAY_INDEX"]
time.sleep(0.5)  # stands for the work
Path(os.environ["NIGHT"], f"shard-{shard}").write_text(f"{int(shard) ** 2}\n")
print(f"shard {shard} is made")
