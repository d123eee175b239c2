"""Who may do what: RBAC as Kubernetes evaluates it."""
