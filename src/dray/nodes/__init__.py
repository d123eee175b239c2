"""Simulated nodes, hardware and fabric: deciders that stand in for kubelets, drivers and attach controllers."""
