"""What arrives becomes claims and changes: one function per kind of message. Reads the ledger, writes nothing.

Functions that yield are asked for their next step only after the one before has been applied, so a plan's second
placement sees the room its first one took. One room per sender: `commands.execute`, `plans.accept`, `reports.progress`,
`timeouts`.
"""

from iris_state.changes import Change
from iris_state.claims import Claim

Step = Change | Claim
