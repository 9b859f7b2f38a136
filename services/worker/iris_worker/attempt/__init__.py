"""What one attempt has: workspace, devices, ports, code, environment, container, output, probes,
and its executor.
"""
