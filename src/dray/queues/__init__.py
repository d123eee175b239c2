"""Queues and gangs as rules: who deserves how much, who is served next, who may take from whom, what a gang needs. No I/O."""
