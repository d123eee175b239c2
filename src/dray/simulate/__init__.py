"""Whole clusters on virtual time: scenarios, faults, and what came of them."""
