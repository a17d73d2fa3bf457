"""`python -m glassformer` is the command `glassformer`."""

from glassformer.cli import main

if __name__ == "__main__":
    main()
