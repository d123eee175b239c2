"""What a pod needs: its claims, and the claim that is made for its extended resources."""
