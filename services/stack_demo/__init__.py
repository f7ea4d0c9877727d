"""The demo with fewer days, run in the containers of the local stack: `make stack-demo`."""
