"""One cycle: its snapshot of the mirror, what earlier cycles found, and what must end on hosts before."""
