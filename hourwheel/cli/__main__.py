"""`python -m hourwheel.cli`: the same as `hourwheel`."""

from hourwheel.cli import main

if __name__ == "__main__":
    main()
