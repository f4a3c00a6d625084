"""The console: every partition of any Kafka cluster, live, in a browser.

A process of its own, and an ordinary client of its clusters: it asks brokers through the feeds of `barnabas.monitor`,
and serves the page and its data over HTTP.

    cluster feeds -> ClusterTable -> WatchedCluster -> Screens -> reading routes, live streams -> the page
    history file  -> PastTable    -> PastCluster    -> Screens -> reading routes with ?at=

Imports `monitor`, `history`, `whatif`, `embedded` and the packages below them. Begin with `security/rights.py`, the
table of all routes, then `application.py` and `cluster_view.py`.
"""
