"""Queues and gangs in the scheduler: whose turn it is, which pods start together, and who makes room for whom."""
