"""A real cluster for users' own tests, as a context manager and as a pytest fixture.

    from iris.testing import LocalCluster

    @pytest.fixture(scope="session")
    def cluster():
        with LocalCluster(workers=1) as cluster:
            yield cluster

or, with ``pytest_plugins = ["iris.testing"]`` in a conftest, the session's ready-made fixture
``iris_cluster``. Needs the extra ``iris-control-plane[local]``. Out of scope: the cluster itself.
"""

from collections.abc import Iterator

from iris.cluster.local import LocalCluster, NotStarted

__all__ = ["LocalCluster", "NotStarted"]

try:
    import pytest
except ModuleNotFoundError:  # the context manager works without pytest
    pass
else:

    @pytest.fixture(scope="session")
    def iris_cluster() -> Iterator[LocalCluster]:
        """A cluster of two CPU hosts for the whole session."""
        with LocalCluster() as cluster:
            yield cluster
