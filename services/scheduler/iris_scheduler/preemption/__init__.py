"""Making room for a higher band by stopping a lower one."""
