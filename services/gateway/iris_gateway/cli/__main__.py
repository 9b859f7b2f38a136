"""`python -m iris_gateway.cli`, the same as `iris`."""

import sys

from iris_gateway.cli import main

sys.exit(main())
