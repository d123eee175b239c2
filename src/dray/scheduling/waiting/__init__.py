"""Pods that wait: the queue, and what wakes whom."""
