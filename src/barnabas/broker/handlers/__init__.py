"""The handlers: one module per API, named after it, with one function `handle` or `handle_raw`.

A handler module imports any other package of `broker` but no other handler; the dispatcher imports it by its name. The
interface is in `broker/requests/context.py`; begin there, then with `create_topics.py` or `produce.py`.
"""
