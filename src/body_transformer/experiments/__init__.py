"""Every experiment, as data; `body_transformer.experiment` reads it."""
