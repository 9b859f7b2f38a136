"""What the machine is given: its kinds of input, and what becomes of plans, reports of workers and
timers.
"""
