"""The shells that run deciders, live or on virtual time, and what surrounds them: election, health, metrics, stories."""
