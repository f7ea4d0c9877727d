"""The demo in small, through the containers of the local stack: `make stack-demo`."""
