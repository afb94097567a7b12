"""Tools: Python functions that a policy may call. `environment.py` is the environment made of them."""
