"""The one kind of mistake a config can hold."""


class ConfigError(ValueError):
    """A setting that cannot work; the message is meant for the person who gave it."""
