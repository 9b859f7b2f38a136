"""Types and decisions that all services share. Pure: no clock, event loop, socket, randomness or
logging.
"""

DISTRIBUTION = "iris-control-plane"  # `iris` on the package index is another project
__version__ = "0.1.0"
