"""Options of jobs, maps, deployments and updates: what is checked and converted before anything is
sent.
"""
