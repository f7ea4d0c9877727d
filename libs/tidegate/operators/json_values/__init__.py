"""What operators read in JSON values: fields, numbers, and event timestamps."""
