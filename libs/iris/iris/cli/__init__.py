"""The command line: `iris`. Every command is a thin user of the SDK and speaks HTTP only.

Commands are loaded when they are called (`root`); what starts and stops a local cluster is in `cluster`. Out of
scope: anything the SDK can do as well (`iris.client`). Source: docs/design/interfaces.md#command-line.
"""

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; what is meant for people goes to stderr."""
    from iris.cli.root import invoke

    return invoke(sys.argv[1:] if arguments is None else arguments)
