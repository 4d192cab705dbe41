"""`python -m node`: see node/process/command.py."""

from importlib import import_module

from hourwheel import program

if __name__ == "__main__":
    program.run(lambda: import_module("node.process.command").main)
