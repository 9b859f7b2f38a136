"""The command line: `iris`. Every command uses the SDK and HTTP only.

Commands are imported when they are called (`root`); `cluster` starts and stops a local cluster. See
also: `iris.client`, the SDK.
"""

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; messages for people go to stderr."""
    try:
        from iris.cli.root import invoke

        return invoke(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:  # while modules are imported; later `invoke` says what it ends
        return 130
