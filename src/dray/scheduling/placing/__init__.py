"""Where a pod goes: which nodes will do, which is best."""
