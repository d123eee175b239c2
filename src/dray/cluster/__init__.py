"""The port to a cluster, the typed picture of it, and the ways to reach one."""
