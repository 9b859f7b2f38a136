"""Code bundles: fetching, checking and unpacking them."""
