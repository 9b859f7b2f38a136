"""Fixtures every test may ask for."""

from tests.support.nats import connection, nats_server, nats_url, own_nats

__all__ = ["connection", "nats_server", "nats_url", "own_nats"]
