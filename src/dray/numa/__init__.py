"""NUMA zones: what kubelets admit, where pods are, which nodes are best for them. Pure: no I/O, no clock."""
