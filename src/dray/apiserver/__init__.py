"""The embedded Kubernetes API: store, registry, operations, discovery, tables, HTTP, and the in-process port.

The core is synchronous, single-threaded and deterministic given its clock and its randomness; HTTP, ``Embedded`` and a
simulation on virtual time are three ways to call the same code.
"""
