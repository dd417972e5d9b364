"""What all ways of training share."""
