"""`python -m iris.cli`, the same as `iris`."""

import sys

from iris.cli import main

sys.exit(main())
