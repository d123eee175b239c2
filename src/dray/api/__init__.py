"""The words of the Kubernetes API: typed objects, quantities, selectors, gates, defaults.

Everything here is pure: no clock, no I/O. Typed objects are the subset of fields that Dray decides on; they are never
sent back whole. Writes are patches, so a field that Dray does not know survives.
"""
