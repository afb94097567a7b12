"""What runs inside the sandbox: shipped there as compiled code, so each module imports only Python's own library.

`program` is the process of the untrusted program, `tester` the one of the tests, `codec` what they talk with.
"""
