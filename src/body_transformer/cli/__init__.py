"""The command `bot`: one file a verb."""
