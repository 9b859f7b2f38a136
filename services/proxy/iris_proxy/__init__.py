"""The reverse proxy in front of deployments: ``/d/<name>/...`` to one of the deployment's
routes.
"""
