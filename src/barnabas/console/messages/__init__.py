"""Records, browsed and searched: fetched by the console, decoded and filtered by a process of its own with limits."""
