"""HTTP: bodies, parameters, refusals and limits; what is asked is decided in `iris_gateway.api`."""
