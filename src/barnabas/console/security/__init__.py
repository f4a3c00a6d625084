"""Who can do what: users, sessions, roles by route, and the checks of every request."""
