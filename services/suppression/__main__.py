"""`python -m services.suppression FILE`: runs every suppression operator of a configuration file."""

from services.service import main

main("suppression")
