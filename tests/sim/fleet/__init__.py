"""A simulated cloud, its provisioner and the work on its hosts, beside the decisions about pools."""
