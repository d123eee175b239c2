"""Making room: who is evicted for whom, and what is kept for whom meanwhile."""
