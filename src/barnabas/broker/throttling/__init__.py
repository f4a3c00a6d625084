"""Client quotas: the rates of clients, and the throttling of those above their quota."""
