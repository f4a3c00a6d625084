"""The time machine: the states of a cluster in one file, and the state at any moment of it.

    ClusterTable --ChangeSet--> Recorder --> one SQLite file --> History.at(time) --> PastTable: the table's columns

    recorder = Recorder("cluster.db", table)          # records until close(); call tick(now_ms) once a second
    history = History.open("cluster.db")
    history.span()                                    # (first, last) in milliseconds
    history.at("12:03").counts()
    history.events(since_ms, until_ms, limit=100)     # changes, with causes
    history.partition("orders", 3)                    # the changes of one partition
    history.gaps()                                    # when nothing was recorded, and why

`schema` describes the file, `recorder` writes it, `reader` reads it. Imports `monitor` and the packages below it.
Begin with `schema.py`.
"""
