"""From decision to bound pod."""
