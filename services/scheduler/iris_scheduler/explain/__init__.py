"""The reasons why pending work was not placed."""
