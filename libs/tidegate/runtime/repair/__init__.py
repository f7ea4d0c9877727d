"""What a person asks for when something was lost or refused: skip, settle, redrive."""
