"""What is asked for: the specifications of jobs and deployments, the types of their fields and
their options. Pure.
"""
