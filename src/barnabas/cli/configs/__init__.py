"""`barnabas configs`: shows and changes the dynamic configs of topics, brokers and their loggers."""
