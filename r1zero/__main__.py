"""`python -m r1zero`: the command line, for launchers that start a module (`accelerate launch -m r1zero train …`)."""

import sys

from r1zero.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
