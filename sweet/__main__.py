"""`python -m sweet` is `sweet`."""

from sweet.cli import main

if __name__ == "__main__":
    main()
