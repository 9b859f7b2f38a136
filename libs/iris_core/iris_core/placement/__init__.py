"""Where and in which order tasks may run, and the reasons why they wait. Pure."""
