"""The state machine: takes one input after another, each a command, report, plan or timer, and decides a commit. Pure."""
