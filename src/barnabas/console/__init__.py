"""The console: every partition of any Kafka cluster, live, in a browser.

A process of its own, and an ordinary client of its clusters: it asks brokers through the feeds of `barnabas.monitor`,
and serves the page and its data over HTTP.
"""
