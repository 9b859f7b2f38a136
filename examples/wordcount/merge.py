"""The child job of the word count: all parts into one."""

import collections
import json
import os
from pathlib import Path

RESULTS = Path(os.environ["RESULTS"])

words: collections.Counter[str] = collections.Counter()
for part in sorted(RESULTS.glob("part-*.json")):
    words.update(json.loads(part.read_text()))
(RESULTS / "words.json").write_text(json.dumps(words.most_common()))
print(f"{os.environ['IRIS_JOB']}: {len(words):,} different words")
