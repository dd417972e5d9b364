"""Text from files and peers, made safe for a terminal."""


def printable(text: object, keep: str = "") -> str:
    r"""Return the text with every character escaped that could drive a terminal or hide text: `\x1b`, `\n`, `\u202e`.

    These are control characters, bidirectional overrides, lone surrogates and the other characters that `repr` escapes.
    Printable characters of every language stay, as do the characters in `keep`, such as the newlines of a message.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else repr(one)[1:-1] for one in text)
