"""Controllers: each one a decider that keeps one promise about the objects of a cluster."""
