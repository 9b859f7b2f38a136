"""What a service frees goes back to the system."""

import subprocess
import sys

CHILD = """
import sys
from iris_service.run import return_freed_blocks
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
if sys.argv[1:] == ["fixed"]:
    return_freed_blocks()
del [bytes(8 << 20)][0]
blocks = [b"x" * (4 << 20) for _ in range(20)]
most = resident()
del blocks[:-1]
print((most - resident()) >> 20)
"""


def freed(*words: str) -> int:
    """MiB that a process returns of 76 that it frees below a block that it keeps."""
    return int(
        subprocess.run(
            [sys.executable, "-c", CHILD, *words], capture_output=True, check=True
        ).stdout
    )


def test_large_blocks_return_to_the_system():
    assert freed("fixed") > 70
