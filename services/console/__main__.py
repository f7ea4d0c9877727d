"""`python -m services.console FILE`: serve the console, with the options of `tidegate console`."""

import sys

from tidegate.cli.main import main

main(["console", *sys.argv[1:]], prog_name="python -m services.console")
