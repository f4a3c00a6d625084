"""Orders: the event, the data set it comes from, the producer that replays it, the books that prove it arrived."""
