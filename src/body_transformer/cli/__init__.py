"""The command `bot`: one file per verb."""
