"""What people see of decisions."""
