"""HTTP: requests, refusals, limits and the OpenAPI document; what is asked is decided in
`iris_gateway.api`.
"""
