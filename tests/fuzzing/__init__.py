"""The suite's properties on random bytes, for as long as there is time: `make fuzz`."""
