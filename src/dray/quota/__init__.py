"""What quotas count: names, scopes, the usage of single objects, and the account of a namespace. No I/O, no clock."""
