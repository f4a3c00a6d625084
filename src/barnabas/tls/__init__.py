"""TLS: the contexts of a node's listeners and of its links to other nodes, and those of our own clients.

    stores.py              keys and trusted certificates from PEM, PKCS12 (`cryptography`) and JKS
    listener_settings.py   the `ssl.*` keys of a listener
    listener_contexts.py   the contexts made from these settings
    node_contexts.py       the contexts of all listeners, and their changes at run time
    mapping_rules.py       maps names of certificates to names of principals
    alerts.py              the alert that tells a client why its handshake failed
    contexts.py            contexts of clients; the Spark source and the monitor import it

No module opens a connection. Begin with `node_contexts.py`.
"""
