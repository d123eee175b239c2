"""Where pods run: queue, nodes, plugins, cycle and binding, as one decider (``scheduler.Scheduler``). No I/O."""
