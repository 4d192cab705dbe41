"""`python -m replication.control`: see replication/control/process.py."""

from importlib import import_module

from hourwheel import program

if __name__ == "__main__":
    program.run(lambda: import_module("replication.control.process").main)
