"""Every experiment, as data; `body_transformer.config` reads it."""
